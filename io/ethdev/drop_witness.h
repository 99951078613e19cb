// A port's record of frames that it dropped although they carry the id and the key of a known job:
// their sources, and the reasons. The record is for the workers whose frames they are. Other frames
// get no place in it, so that strangers can neither fill it nor have a worker told anything.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/frame.h"

namespace ina::io {

/// Frames with the same fate.
struct DroppedFrames {
  DropReason reason{};
  Rank rank{};           ///< as they say
  wire::Address source;  ///< of the last
  wire::Address destination;
  uint64_t count = 0;
};

/// Fixed in size; all of it on the thread of one lane. note() neither allocates nor searches.
class DropWitness {
 public:
  /// Entries of each job: for one worker with the wrong port, and some whose frames are damaged.
  static constexpr size_t kPerJob = 8;

  DropWitness() : jobs_(kJobs) {}

  /// From now on frames of this job are remembered. The job that had its place is not any more:
  /// ids are given out one after the other, so that this takes more jobs at a time than kJobs.
  void expect(JobId job, uint64_t key) {
    Job& entry = of(job);
    if (entry.known && entry.id == job && entry.key == key) return;
    entry = {};
    entry.known = true;
    entry.id = job;
    entry.key = key;
  }
  void forget(JobId job) {
    if (Job& entry = of(job); entry.known && entry.id == job) entry = {};
  }

  void note(const wire::Envelope& envelope, Rank rank, DropReason reason) {
    Job& job = of(envelope.job);
    if (!job.known || job.id != envelope.job || job.key != envelope.job_key) return;
    for (DroppedFrames& dropped : job.dropped) {
      if (dropped.count == 0) {
        dropped = {reason, rank, envelope.source, envelope.destination, 1};
        return;
      }
      if (dropped.reason != reason || dropped.rank != rank) continue;
      dropped.source = envelope.source;
      dropped.destination = envelope.destination;
      ++dropped.count;
      return;
    }
  }

  /// The dropped frames of a job; entries with count 0 are free places.
  std::span<const DroppedFrames> dropped(JobId job) const {
    const Job& entry = jobs_[index(job)];
    if (!entry.known || entry.id != job) return {};
    return entry.dropped;
  }

 private:
  static constexpr size_t kJobs = 256;
  struct Job {
    bool known = false;
    JobId id{};
    uint64_t key = 0;
    std::array<DroppedFrames, kPerJob> dropped{};
  };
  static size_t index(JobId job) { return value(job) % kJobs; }
  Job& of(JobId job) { return jobs_[index(job)]; }

  std::vector<Job> jobs_;
};

}  // namespace ina::io

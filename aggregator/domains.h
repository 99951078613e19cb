// Jobs of more members than a switch has bits (docs/protocol.md, "Trees"): their domains are jobs
// of the same shard, under a root that is one, too. What goes between them does not leave the
// shard. Each has a JobSpec::id of its own: equal fragments of all would meet in the same slots.
#pragma once

#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "aggregator/serve.h"

namespace ina::aggregator {

/// Stands between a shard and its ports. One thread uses it, as the shard.
class Domains {
 public:
  /// Both must outlive it.
  Domains(Aggregator& aggregator, uint32_t lanes)
      : aggregator_(aggregator),
        lanes_(lanes),
        above_(aggregator.shape().max_jobs),
        below_(aggregator.shape().max_jobs) {
    for (auto& members : below_) members.fill(kNone);
    // Each packet of a burst makes one fragment whole, at most.
    up_.reserve(Aggregator::kMaxBurst);
    going_.reserve(Aggregator::kMaxBurst);
  }

  /// `domain` is a member of `root`.
  void link(JobIndex domain, JobIndex root, Rank member) {
    leave(domain);
    above_[domain] = {root, member};
    below_[root][value(member)] = domain;
    ++linked_;
  }

  /// The job leaves the shard.
  void unlink(JobIndex job) {
    leave(job);
    for (const JobIndex domain : below_[job])
      if (domain != kNone) leave(domain);
  }
  /// True if a job has domains. Otherwise nothing goes through here.
  bool any() const { return linked_ != 0; }

  /// A `send` of serve(): what is for another domain goes there, the rest to `send`.
  template <class Send>
  struct Through {
    Domains& domains;
    Send& send;

    void operator()(JobIndex job, Rank rank, const Emission& emission) const {
      if (rank == kFallbackRank && domains.above_[job].root != kNone)
        domains.hand_up(domains.above_[job], emission);
      else if (rank != kFallbackRank && domains.below_[job][value(rank)] != kNone)
        domains.hand_down(domains.below_[job][value(rank)], emission, send);
      else
        send(job, rank, emission);
    }
    void to_all(JobIndex job, uint32_t workers,
                const Emission& emission) const requires SendsToAll<Send> {
      if (domains.below_[job][0] == kNone) return send.to_all(job, workers, emission);
      for (uint32_t member = 0; member < workers; ++member)
        (*this)(job, Rank{static_cast<uint16_t>(member)}, emission);
    }
  };
  template <class Send>
  Through<Send> through(Send& send) {
    return {*this, send};
  }

  /// To be called after serve(): decides what domains have for their roots, until there is nothing.
  /// `verdicts`: scratch space of one burst.
  template <class Send, class Mismatch>
  void serve_roots(std::span<Verdict> verdicts, Nanos now, Send& send, Mismatch&& mismatch) {
    while (!up_.empty()) {
      going_.swap(up_);
      std::span<const RxPacket> left = going_;
      while (!left.empty()) {
        const auto burst = left.first(std::min<size_t>(left.size(), aggregator_.shape().burst));
        left = left.subspan(burst.size());
        packets_ += burst.size();
        serve_burst(aggregator_, burst, verdicts, now, through(send), mismatch);
      }
      going_.clear();
    }
    // Those that a root had kept may have been given to its domains just now.
    while (std::exchange(handed_down_, false)) send_bare_results(aggregator_, now, through(send));
  }
  /// Packets decided here, which came from no port.
  uint64_t packets() const { return packets_; }

 private:
  static constexpr JobIndex kNone = std::numeric_limits<JobIndex>::max();
  struct Above {
    JobIndex root = kNone;
    Rank member{};
  };

  /// The domain is below no root any more; those below it stay.
  void leave(JobIndex domain) {
    if (above_[domain].root == kNone) return;
    below_[above_[domain].root][value(above_[domain].member)] = kNone;
    above_[domain] = {};
    --linked_;
  }
  /// Its payload lies in the domain's row of the fragment, and stays there until the root has
  /// decided. What finds no room is lost, as on a link.
  void hand_up(const Above& above, const Emission& emission) {
    if (up_.size() == up_.capacity()) return;
    up_.push_back(
        {emission.message, emission.payload, emission.payload_bytes, above.root, above.member});
  }
  template <class Send>
  void hand_down(JobIndex domain, const Emission& emission, Send& send) {
    handed_down_ = true;
    wire::Outgoing packet{emission.message, emission.payload, emission.payload_bytes};
    uint32_t fragments = 1;  // of a run of bare results
    if (packet.message.bare()) fragments = std::exchange(packet.message.elements, uint16_t{1});
    for (; fragments != 0; --fragments, packet.message.seq += lanes_) {
      Verdict verdict;
      aggregator_.on_spill(domain, packet, verdict);
      carry_out(aggregator_, verdict, Rank{}, through(send));
    }
  }

  Aggregator& aggregator_;
  uint32_t lanes_;
  std::vector<Above> above_;                              ///< by domain
  std::vector<std::array<JobIndex, kMaxWorkers>> below_;  ///< by root and member
  std::vector<RxPacket> up_, going_;
  uint64_t packets_ = 0;
  uint32_t linked_ = 0;
  bool handed_down_ = false;
};

}  // namespace ina::aggregator

#include "sim/nic.h"

#include <cstring>

namespace ina::sim {

namespace {

struct PlainCopier {
  void copy(std::span<const client::CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

}  // namespace

Nic::Nic(Fabric& fabric, uint32_t host, const client::EngineConfig& config, JobId job,
         uint64_t job_key, uint32_t switch_host)
    : fabric_(fabric),
      host_(host),
      engine_(config),
      transport_(fabric, host, job, job_key, config.slot_bytes, switch_host) {}

void Nic::receive() {
  PlainCopier copier;
  client::RxPacket received[kBurst];
  while (const size_t count = transport_.rx_burst(received)) {
    engine_.on_packets(std::span(received, count), fabric_.now(), copier);
    transport_.rx_release();
  }
}

bool Nic::on_timer(uint64_t argument) {
  if (argument == kPump) {
    wake_at_ = INT64_MAX;
    return true;
  }
  deadline_at_ = INT64_MAX;
  if (fabric_.now() >= engine_.next_deadline()) return true;
  watch_deadline();
  return false;
}

size_t Nic::room_on_link() {
  const uint64_t frame_bytes = fabric_.wire_bytes(engine_.config().slot_bytes);
  const uint64_t queued = fabric_.queued_bytes(host_);
  if (queued < kRingFrames * frame_bytes) return kRingFrames - queued / frame_bytes;
  const uint64_t surplus = queued - kRingFrames * frame_bytes / 2;
  wake_at(fabric_.now() + static_cast<Nanos>(static_cast<double>(surplus) * 8e9 /
                                             static_cast<double>(fabric_.rate_bps(host_))));
  return 0;
}

void Nic::wake_at(Nanos at) {
  if (wake_at_ <= at) return;
  wake_at_ = at;
  fabric_.schedule(at, host_, kPump);
}

void Nic::watch_deadline() {
  const Nanos next = engine_.next_deadline();
  if (next == client::Engine::kNever) return;
  // Overdue fragments may have to wait for the link.
  const Nanos deadline = next > fabric_.now() ? next : fabric_.now() + kPatienceNs;
  if (deadline_at_ <= deadline) return;
  deadline_at_ = deadline;
  fabric_.schedule(deadline, host_, kDeadline);
}

}  // namespace ina::sim

// A job whose switch and workers' engines are in this process, without a transport: messages are
// handed over, late by chance, or get lost.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "aggregator/serve.h"
#include "operations/executor.h"

namespace ina::test {

class MemoryJob {
 public:
  /// `seed`: of the order of senders. One of so many messages gets lost, either way; 0: none.
  MemoryJob(uint32_t workers, uint32_t slot_bytes, uint32_t seed, uint32_t lost_of = 0)
      : random_(seed), lost_of_(lost_of), workers_(workers) {
    aggregator::Shape shape;
    shape.slots = 2 * kWindow;
    shape.slot_bytes = slot_bytes;
    shape.max_jobs = 1;
    shape.burst = kBurst;
    shape.policy.kind = scheduler::PolicyKind::kStatic;
    rows_.resize(aggregator::Aggregator::row_memory_bytes(shape) / sizeof(Line));
    aggregator_ =
        std::make_unique<aggregator::Aggregator>(shape, std::as_writable_bytes(std::span(rows_)));
    results_.resize(2 * size_t{kWindow} * slot_bytes / sizeof(Line));
    seen_.assign(aggregator::JobSpec::seen_words(kWindow, 1), {});
    aggregator::JobSpec spec;
    spec.id = JobId{1};
    spec.epoch = 1;
    spec.workers = workers;
    spec.window = kWindow;
    spec.pool.slots = 2 * kWindow;
    spec.results = reinterpret_cast<std::byte*>(results_.data());
    spec.seen = seen_.data();
    aggregator_->add_job(0, spec);
    for (uint32_t rank = 0; rank < workers; ++rank) {
      client::EngineConfig config;
      config.rank = Rank{static_cast<uint8_t>(rank)};
      config.workers = workers;
      config.epoch = 1;
      config.window = kWindow;
      config.slot_bytes = slot_bytes;
      Worker& worker = workers_[rank];
      worker.engine = std::make_unique<client::Engine>(config);
      worker.channel = std::make_unique<client::EngineChannel>(*worker.engine);
      client::Channel* const channels[] = {worker.channel.get()};
      worker.executor = std::make_unique<client::Executor>(channels, size_t{1} << 20);
    }
  }

  client::Engine& engine(uint32_t rank) { return *workers_[rank].engine; }
  client::Executor& executor(uint32_t rank) { return *workers_[rank].executor; }

  /// Until `done()`, or nothing has happened for long. Returns done().
  template <class Done>
  bool run(Done&& done) {
    for (uint32_t idle = 0; !done(); ++now_) {
      bool moved = false;
      for (uint32_t rank = 0; rank < workers_.size(); ++rank)
        if (random_() % 2 == 0) moved = step(rank) || moved;
      idle = moved ? 0 : idle + 1;
      if (idle == kPatience) return false;
      if (idle % kTurns == kTurns - 1) pass_time();
    }
    return true;
  }

 private:
  static constexpr uint32_t kWindow = 64;
  static constexpr uint32_t kBurst = 32;
  static constexpr uint32_t kTurns = 50;  ///< in which everybody had one
  static constexpr uint32_t kPatience = 100 * kTurns;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Held {
    wire::Message message;
    std::vector<std::byte> payload;
  };
  struct Worker {
    std::unique_ptr<client::Engine> engine;
    std::unique_ptr<client::EngineChannel> channel;
    std::unique_ptr<client::Executor> executor;
    std::deque<Held> inbox;
  };
  struct Copier {
    void copy(std::span<const client::CopyJob> jobs) {
      for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
    }
  };
  /// The packets that one worker has sent.
  struct Port {
    MemoryJob& job;
    std::span<const client::TxPacket> packets;
    Rank rank;

    size_t rx_burst(std::span<aggregator::RxPacket> burst) {
      const size_t taken = std::min(packets.size(), burst.size());
      size_t count = 0;
      for (const client::TxPacket& packet : packets.first(taken))
        if (!job.is_lost())
          burst[count++] = {packet.message, packet.payload, packet.payload_bytes, 0, rank};
      packets = packets.subspan(taken);
      return count;
    }
    void rx_release() {}
  };

  bool is_lost() { return lost_of_ != 0 && random_() % lost_of_ == 0; }

  /// To the time at which a worker looks after missing results.
  void pass_time() {
    Nanos next = client::Engine::kNever;
    for (const Worker& worker : workers_) next = std::min(next, worker.engine->next_deadline());
    if (next != client::Engine::kNever) now_ = std::max(now_, next);
  }

  bool step(uint32_t rank) {
    Worker& worker = workers_[rank];
    Copier copier;
    bool moved = !worker.inbox.empty();
    for (size_t left = worker.inbox.size(); left != 0; --left) {
      const Held held = std::move(worker.inbox.front());
      worker.inbox.pop_front();
      const client::RxPacket packet{held.message, held.payload.data(),
                                    static_cast<uint32_t>(held.payload.size())};
      worker.engine->on_packets(std::span(&packet, 1), now_, copier);
    }
    client::TxPacket packets[client::Engine::kBurst];
    const size_t count = worker.engine->prepare(packets, now_);
    Port port{*this, std::span(packets, count), Rank{static_cast<uint8_t>(rank)}};
    while (!port.packets.empty()) serve(port);
    worker.engine->sent(count, now_);
    return moved || count != 0;
  }

  void serve(Port& port) {
    aggregator::RxPacket packets[kBurst];
    aggregator::Verdict verdicts[kBurst];
    const auto send = [&](JobIndex, Rank to, const aggregator::Emission& emission) {
      if (is_lost()) return;
      workers_[value(to)].inbox.push_back(
          {emission.message, {emission.payload, emission.payload + emission.payload_bytes}});
    };
    const auto mismatch = [](const aggregator::RxPacket& packet, const aggregator::Verdict&) {
      ADD_FAILURE() << "the switch sees a mismatch at seq " << packet.message.seq;
    };
    aggregator::serve(port, *aggregator_, packets, verdicts, now_, send, mismatch);
  }

  using JobIndex = aggregator::JobIndex;
  std::mt19937 random_;
  const uint32_t lost_of_;
  Nanos now_ = 0;
  std::vector<Line> rows_, results_;
  std::vector<WorkerSet> seen_;
  std::unique_ptr<aggregator::Aggregator> aggregator_;
  std::vector<Worker> workers_;
};

}  // namespace ina::test

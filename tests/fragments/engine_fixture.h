// An engine whose packets a test takes and answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "fragments/engine.h"

namespace ina::client {

inline constexpr Nanos kRto = 1'000'000;

struct PlainCopier {
  void copy(std::span<const CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

class EngineTest : public testing::Test {
 protected:
  static EngineConfig config() {
    EngineConfig config;
    config.rank = Rank{3};
    config.workers = 4;
    config.epoch = 9;
    config.window = 4;
    config.slot_bytes = 256;  // 64 float32 a fragment
    config.lanes = 2;
    config.rules.rto_min_ns = kRto;
    config.rules.rto_max_ns = 8 * kRto;
    return config;
  }

  /// `target`: of its results (OperationSpec).
  Operation* submit(size_t elements, uint32_t target = 0) {
    data_.assign(elements, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data_.data());
    return engine_->submit({.send = bytes,
                            .recv = bytes,
                            .elements = elements,
                            .dtype = DType::kFloat32,
                            .target = target},
                           0);
  }

  /// The packets that the engine sends at `now`; all are taken.
  std::vector<TxPacket> send(Nanos now) {
    TxPacket packets[Engine::kBurst];
    const size_t count = engine_->prepare(packets, now);
    engine_->sent(count, now);
    return {packets, packets + count};
  }

  /// A result for a sent packet, each element `value`.
  void result(const TxPacket& sent, float value, Nanos now,
              const std::function<void(wire::Message&)>& change = {}) {
    std::vector<float> payload(sent.message.elements, value);
    RxPacket packet{sent.message, reinterpret_cast<std::byte*>(payload.data()),
                    static_cast<uint32_t>(payload.size() * 4)};
    packet.message.type = wire::Type::kResult;
    if (change) change(packet.message);
    PlainCopier copier;
    engine_->on_packets({&packet, 1}, now, copier);
  }

  /// Shares the array's slots with others, and has a fallback elsewhere.
  static EngineConfig wide_config() {
    EngineConfig wide = config();
    wide.window = 256;
    wide.rules.policy = scheduler::PolicyKind::kFcfs;
    wide.rules.home = Home::kDedicated;
    return wide;
  }

  /// 256 fragments, sent at 0.
  std::vector<TxPacket> send_a_wide_window() {
    engine_.emplace(wide_config());
    submit(64 * 256);
    std::vector<TxPacket> packets;
    while (packets.size() < 256) std::ranges::copy(send(0), std::back_inserter(packets));
    return packets;
  }

  std::optional<Engine> engine_{config()};
  std::vector<float> data_;
};

class LossyLinkTest : public EngineTest {
 protected:
  LossyLinkTest() {
    EngineConfig lossy = config();
    lossy.window = 256;
    lossy.lossy_link = true;
    engine_.emplace(lossy);
  }
  /// All that the window lets out, each at its time.
  std::vector<TxPacket> send_all(Nanos& now) {
    std::vector<TxPacket> all;
    for (;;) {
      const auto some = send(now);
      all.insert(all.end(), some.begin(), some.end());
      if (!some.empty()) continue;
      if (!engine_->paced()) return all;
      now = engine_->next_deadline();
    }
  }
};

}  // namespace ina::client

// The worker's side of the same-host port (io/shm/layout.h). Needs no DPDK, no hugepages and no
// root.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "fragments/transport.h"
#include "io/shm/layout.h"
#include "io/shm/region.h"
#include "transport/bulk_copy.h"

namespace ina::client {

class ShmTransport final : public Transport {
 public:
  /// Makes the worker region; its descriptor goes to the switch by region_fd().
  static Result<std::unique_ptr<ShmTransport>> create(const io::shm::Geometry& geometry,
                                                      const Fd& switch_region,
                                                      const Fd& result_region,
                                                      std::vector<Fd> wake_events,
                                                      BulkCopier& copier);
  int region_fd() const { return own_.fd.get(); }

  size_t tx_burst(std::span<const TxPacket> packets) override;
  size_t rx_burst(std::span<RxPacket> packets) override;
  void rx_release() override;
  void wait(Nanos timeout_ns) override;
  void wake() override;
  /// A word of the switch's, which it changes when it wakes this side.
  struct Doorbell {
    const std::atomic<uint32_t>* word;
    uint32_t value;
  };
  /// wait() in parts, for a thread that waits for several transports: from now on the switch rings.
  /// Nothing: a packet is there already, and nobody rings.
  std::optional<Doorbell> begin_sleep();
  void end_sleep();
  bool set_idle(bool idle) override;
  void set_registered(uint32_t number, std::span<const std::byte> memory) override;
  void set_result_buffer(uint32_t first_unit, std::span<const std::byte> memory) override;
  TransportCounters counters() const override { return counters_; }

 private:
  struct Lane {
    io::shm::Descriptor* tx_ring;
    std::byte* payload;
    const io::shm::Position* tx_read;
    const io::shm::SleepFlag* switch_sleeping;
    const io::shm::Descriptor* rx_ring;
    io::shm::Position* rx_read;
    uint64_t tx_index = 0;
    uint64_t tx_read_seen = 0;
    uint64_t tx_published = 0;
    uint64_t rx_index = 0;
  };

  explicit ShmTransport(BulkCopier& copier) : copier_(copier) {}
  bool has_packet() const;
  void publish(Lane& lane);
  struct Registered {
    uint32_t number;
    std::span<const std::byte> memory;
  };
  struct ResultBuffer {
    uint64_t offset;  ///< within all of the job's
    std::span<const std::byte> memory;
  };
  const Registered* registered_at(const std::byte* payload, uint32_t bytes) const;
  std::span<const std::byte> payload_at(uint64_t offset, uint32_t bytes) const;

  io::shm::Geometry geometry_;
  io::shm::Region own_;
  Mapping switch_region_;
  Mapping results_;
  std::vector<Fd> wake_events_;
  std::vector<Lane> lanes_;
  std::vector<Registered> registered_;
  std::vector<ResultBuffer> result_buffers_;
  uint32_t next_lane_ = 0;
  io::shm::SleepFlag* sleeping_ = nullptr;
  uint32_t idle_period_ = io::shm::kAsleep;
  const io::shm::SleepFlag* doorbell_ = nullptr;
  std::atomic<bool> woken_{false};
  BulkCopier& copier_;
  TransportCounters counters_;
};

}  // namespace ina::client

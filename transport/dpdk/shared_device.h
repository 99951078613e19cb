// A device and the channels of one worker that use it: its job's, and those of its groups. Frames
// are told apart by the job in them. A channel that takes frames from the device puts those of
// others into their inboxes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "io/ethdev/device.h"
#include "transport/dpdk/ethernet.h"
#include "transport/url.h"
#include "wire/types.h"

namespace ina::client {

class SharedDevice {
 public:
  static constexpr uint16_t kMaxBurst = io::Device::kMaxBurst;
  /// Frames that wait for a channel which does not look. Further frames are lost, as in a queue of
  /// the network.
  static constexpr uint16_t kInboxFrames = 128;

  /// Everything of a channel that the device's buffers are in.
  struct Channel {
    Channel();
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    void drop_frames();

    bool bound = false;  ///< under the device's mutex, as are `job` and the inbox
    JobId job{};
    std::array<rte_mbuf*, kInboxFrames> inbox{};
    uint16_t waiting = 0;
    std::atomic<uint64_t> lost{0};  ///< frames for which the inbox had no room

    // Frames taken from the caller that the device did not take yet.
    std::array<rte_mbuf*, kMaxBurst> unsent{};
    uint16_t unsent_begin = 0;
    uint16_t unsent_end = 0;
    // Frames received: those up to `read` have been looked at, and the caller may read their
    // payloads.
    std::array<rte_mbuf*, kMaxBurst> received{};
    uint16_t read = 0;
    uint16_t received_count = 0;

    Fd wake_event;                    ///< ends its wait; from any thread
    std::atomic<bool> asleep{false};  ///< a frame in its inbox is to wake it
  };

  /// Nothing is opened yet. `ethernet`: of a dpdk: URL; without, memif: with the address `own`.
  SharedDevice(Url url, uint32_t mtu, const wire::Address& own, std::optional<Ethernet> ethernet);
  ~SharedDevice();
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;

  /// Opens it, or connects it anew. No channel has frames after that, or is bound, and none may be
  /// used meanwhile.
  Result<void> reopen(Nanos timeout_ns);
  void add(Channel& channel);
  void remove(Channel& channel);
  void bind(Channel& channel, JobId job);

  /// Frames of `own` into channel.received, which is empty.
  void rx(Channel& own);
  /// Sends of channel.unsent what the device takes.
  void tx(Channel& own);

  /// The worker's, by all channels.
  wire::Address own() const;
  /// See io::Device. Not after a reopen() that failed.
  uint32_t frame_bytes() const { return device_->frame_bytes(); }
  rte_mempool* tx_pool() const { return device_->tx_pool(); }
  int socket() const { return device_->socket(); }

 private:
  void close();
  void hand_over(rte_mbuf* frame, Channel& own);

  const Url url_;
  const uint32_t mtu_;
  mutable std::mutex mutex_;  ///< of all that follows
  std::optional<Ethernet> ethernet_;
  std::unique_ptr<io::Device> device_;  ///< replaced by reopen() alone
  wire::Address own_;
  std::vector<Channel*> channels_;
};

}  // namespace ina::client

// The switch's side of the same-host port, one object per lane.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/debt.h"
#include "io/port.h"
#include "io/shm/layout.h"
#include "io/shm/region.h"
#include "wire/header_check.h"

namespace ina::io::shm {

/// The memory that the switch shares with one worker, over all lanes. Owned by the conductor, which
/// destroys it only after every lane has detached it.
struct WorkerSession {
  Geometry geometry;
  Region switch_region;   ///< written by the lanes
  Mapping worker_region;  ///< written by the worker
  /// By number: registered memory, likewise; 0 is not used. Changed only while no lane has it.
  std::array<Mapping, kMaxRegions> registered;
  std::vector<Fd>
      wake_events;  ///< eventfd per lane, written by the worker; the switch never reads it
  const std::byte* results = nullptr;  ///< result region of the job
  /// By lane, for the lane: by side row the entry of the receive ring that used it.
  std::vector<std::vector<uint64_t>> side_used_at;
  /// Packets wait for a worker that nobody drives: set by lanes, reset by the conductor before it
  /// sends the worker word.
  std::atomic<bool> call_wanted{false};

  /// Makes the switch's part; the worker's region is mapped when it arrives.
  static Result<std::unique_ptr<WorkerSession>> create(const Geometry& geometry,
                                                       const std::byte* results);
};

class ShmPort {
 public:
  /// `lane`: whose rings of each session this object serves. `ecn`: mark what goes to a worker
  /// that lags behind.
  ShmPort(uint32_t lane, uint32_t max_endpoints, bool ecn = true);

  /// Called on the lane's thread. `session` must stay until detach() has returned.
  Result<EndpointIndex> attach(WorkerSession& session, JobIndex job, Rank rank);
  void detach(EndpointIndex endpoint);

  /// The worker may send from `memory` under this number (1..kMaxRegions-1), or no more if it is
  /// empty.
  void set_registered(EndpointIndex endpoint, uint32_t number, std::span<const std::byte> memory);

  /// Workers of a job are served fragment by fragment, the oldest first, so that contributions to a
  /// fragment come in one burst. Fragments to which not all have contributed come after all others.
  size_t rx_burst(std::span<RxPacket> burst);
  void rx_release();
  /// A payload in the job's result ring or result buffers is only referred to, any other is copied
  /// into a side row.
  bool tx(EndpointIndex endpoint, const wire::Message& message, std::span<const std::byte> payload);
  /// tx() to several workers of a job. Returns to how many.
  size_t tx_to_all(std::span<const EndpointIndex> to, const wire::Message& message,
                   std::span<const std::byte> payload);
  void tx_flush();
  /// True if a tx_flush() since the last call has set a session's call_wanted.
  bool take_calls() { return std::exchange(calls_wanted_, false); }
  const PortCounters& counters() const { return counters_; }

  /// epoll descriptor that becomes readable when a worker rings while the lane sleeps. A caller
  /// that adds other descriptors gives their events `kNobody`.
  int epoll_fd() const { return epoll_.get(); }
  static constexpr uint32_t kNobody = UINT32_MAX;
  /// To be called before a sleep: its longest time. A worker that keeps ringing and has nothing to
  /// send is not heard for a time, but looked at once a millisecond.
  Nanos listen(Nanos now);
  /// To be called with the events that have ended the sleep.
  void rung(std::span<const epoll_event> events, Nanos now);
  /// Tells the workers to ring. False: packets have come meanwhile, do not sleep.
  bool prepare_sleep();
  void end_sleep();

 private:
  struct Endpoint {
    bool active = false;
    JobIndex job = 0;
    Rank rank{};
    uint32_t tx_depth = 0;
    uint32_t rx_depth = 0;
    uint32_t slot_bytes = 0;
    // Sending side of the worker.
    const Descriptor* tx_ring = nullptr;
    Position* tx_read = nullptr;
    uint64_t tx_index = 0;
    bool tx_taken = false;  ///< something was read since the last rx_release
    uint32_t next_seq = 0;  ///< behind the last contribution taken
    uint32_t lanes = 1;
    uint32_t passed_over = 0;  ///< times in a row, though it had something
    wire::HeaderCheck header{};
    // Receiving side.
    Descriptor* rx_ring = nullptr;
    const Position* rx_read = nullptr;
    uint64_t rx_index = 0;
    uint64_t rx_read_seen = 0;
    bool rx_written = false;  ///< something was written since the last tx_flush
    const std::byte* results = nullptr;
    size_t results_bytes = 0;
    const std::byte* switch_base = nullptr;
    std::byte* side = nullptr;         ///< our rows, of slot_bytes
    uint64_t side_index = 0;           ///< rows used so far
    std::span<uint64_t> side_used_at;  ///< WorkerSession::side_used_at
    // Sleeping.
    SleepFlag* lane_sleeping = nullptr;
    const SleepFlag* worker_sleeping = nullptr;
    SleepFlag* doorbell = nullptr;
    std::atomic<bool>* call_wanted = nullptr;
    uint32_t called_in = kAwake;  ///< idle period in which the worker was called
    int wake_event = -1;
    uint64_t tx_index_at_ring = 0;
    Debt empty_rings;
    bool muted = false;  ///< nobody listens to its wake_event
    /// Where payloads may lie; 0: the worker region.
    std::array<std::span<const std::byte>, kMaxRegions> memory;
  };

  /// The state of a crew before anything is taken.
  struct View {
    size_t senders = 0;     ///< workers that have a packet
    bool complete = false;  ///< nobody's contribution to `oldest` is still to come
    bool has_oldest = false;
    uint32_t oldest = 0;  ///< fragment: the lowest that somebody would contribute to next
  };
  enum class Turn : uint8_t { kNone, kNow, kLast };
  /// Workers of a job: active_[first] and the `size` - 1 behind it.
  struct Crew {
    size_t first = 0;
    size_t size = 0;
    size_t next = 0;  ///< polling goes on with this worker, counted from `first`
    View view{};
    Turn turn{};               ///< in this burst
    uint32_t passed_over = 0;  ///< bursts in a row in which it came last
  };
  /// Fragments of a job, the numbers from `first` to `first` + `reach`.
  struct Band {
    uint32_t first = 0;
    uint32_t reach = UINT32_MAX;
    bool holds(uint32_t seq) const { return seq - first <= reach; }
  };

  View look(const Crew& crew) const;
  static Turn turn_for(const Crew& crew);
  size_t take_from(Crew& crew, std::span<RxPacket> burst, size_t fragments);
  template <class Serve>
  void go_round(Serve&& serve);
  size_t take(Endpoint& endpoint, std::span<RxPacket> burst, Band band);
  void count_crews();
  static bool is_filled(const Descriptor& entry, uint64_t index, uint32_t depth) {
    return entry.turn.load(std::memory_order_acquire) == turn_of(index, depth);
  }
  static bool is_filled(const Endpoint& endpoint, uint64_t index);
  bool has_packet(const Endpoint& endpoint) const;
  /// The next message of a worker that has a packet. The worker may change it at any time.
  static const wire::Message& next_of(const Endpoint& endpoint) {
    return endpoint.tx_ring[endpoint.tx_index & (endpoint.tx_depth - 1)].message;
  }
  bool watch(EndpointIndex index);
  static uint64_t nearly_full(const Endpoint& endpoint) {
    return endpoint.rx_depth - endpoint.rx_depth / 4;
  }
  void look_at_reader(Endpoint& endpoint);
  std::byte* next_side_row(Endpoint& endpoint);
  bool side_rows_wait(Endpoint& endpoint, uint64_t payloads);
  static constexpr uint64_t kNotShared = UINT64_MAX;
  static uint64_t shared_offset(const Endpoint& endpoint, const wire::Message& message,
                                const std::byte* payload);
  void write(Endpoint& endpoint, EndpointIndex index, const wire::Message& message, uint64_t offset,
             uint32_t payload_bytes, bool ecn);

  uint32_t lane_;
  bool ecn_;
  Fd epoll_;
  size_t max_endpoints_;
  std::vector<Endpoint> endpoints_;    ///< those that were attached once; capacity is fixed
  std::vector<EndpointIndex> active_;  ///< by job; capacity is fixed
  std::vector<Crew> crews_;            ///< of `active_`; likewise
  size_t next_ = 0;                    ///< crew with which polling goes on
  std::vector<EndpointIndex> written_;
  bool calls_wanted_ = false;
  uint32_t muted_ = 0;  ///< endpoints
  PortCounters counters_;
};

}  // namespace ina::io::shm

// Links and time of ns-3, without its types: its headers want C++17, the project's C++20. Nodes,
// point-to-point links with a rate, a delay, a queue, an ECN threshold and losses, and a schedule.
// ns-3's simulator is one per process, so there may be one network at a time.
//
// Links come in two kinds, which agree (tests/sim): ns-3's own PointToPointNetDevice, and a
// computed one that needs one event a frame, and no packet, in place of two and one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ina::ns3net {

using Nanos = int64_t;
using Node = uint32_t;
using Bytes = std::vector<std::byte>;

enum class Links : uint8_t { kComputed, kDevices };

struct LinkSpec {
  uint64_t rate_bps = 100'000'000'000;
  Nanos delay_ns = 1'000;
  uint64_t queue_bytes = 1 << 20;  ///< before the wire; a frame that finds it full is dropped
  uint64_t ecn_bytes = 0;          ///< a frame that finds more than this queued is marked; 0: never
  double loss = 0;                 ///< probability that a frame is lost on the wire
  /// Frames of so many bytes at most have a queue of their own and do not wait for others, which
  /// they take no time of, being short. 0: there is one queue. Links::kComputed only.
  uint32_t express_bytes = 0;
};

/// When a frame has left that begins at a time and would take so long at the link's full rate.
/// Called once a frame, with times that rise.
using Pace = std::function<Nanos(Nanos begins, Nanos wire_ns)>;

/// The counters of one direction of a link.
struct LinkCounters {
  uint64_t frames = 0;  ///< accepted by the queue
  uint64_t wire_bytes = 0;
  uint64_t queue_drops = 0;
  uint64_t losses = 0;
  uint64_t marks = 0;
  uint64_t queue_peak_bytes = 0;
};

/// The receiver of frames and timers.
class Host {
 public:
  virtual ~Host() = default;
  /// `marked`: congestion experienced.
  virtual void on_frame(Bytes content, bool marked) = 0;
  virtual void on_timer(uint64_t argument) = 0;
};

class Network {
 public:
  explicit Network(uint64_t seed, Links links = Links::kComputed);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  Node add_node(Host& host);
  /// A link in both directions, alike. Throws std::invalid_argument if these links cannot do that.
  void connect(Node a, Node b, const LinkSpec& spec);

  /// From `from` to `to` the link's rate changes with time. Links::kComputed only; otherwise throws
  /// std::invalid_argument.
  void set_pace(Node from, Node to, Pace pace);

  /// Sends over the link that `from` and its neighbour `to` have. `content` arrives there; the link
  /// carries `wire_bytes`, at least as many, with preamble, check sequence and gap. `marked`: it
  /// met congestion before. False: the queue was full.
  bool send(Node from, Node to, Bytes content, uint32_t wire_bytes, bool marked = false);
  /// Bytes that wait before the wire from `from` to `to`.
  uint64_t queued_bytes(Node from, Node to);

  Nanos now() const;
  /// Calls on_timer(argument) of the host at that time; it cannot be taken back.
  void schedule(Nanos at, Host& host, uint64_t argument);
  /// Until nothing is left to happen, `until` has come, or stop() was called.
  void run(Nanos until);
  void stop();

  LinkCounters counters(Node from, Node to) const;
  uint64_t events() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ina::ns3net

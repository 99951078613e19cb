// A transport that carries frames (Ethernet/IPv4/UDP) instead of sharing memory with the switch. It
// is opened in two steps: the worker tells the switch its own address when it joins, and only then
// learns the switch's address.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "fragments/transport.h"
#include "transport/url.h"
#include "wire/frame.h"

namespace ina::client {

/// The addresses and keys of a worker's frames once it has joined a job.
struct FrameBinding {
  wire::Address own;             ///< as given by address()
  wire::Address switch_address;  ///< lane n listens on udp_port + n
  JobId job{};
  uint64_t job_key = 0;
  uint16_t lanes = 1;
  uint32_t slot_bytes = 0;
  std::optional<wire::TagKeys> tag_keys{};  ///< frames carry tags, both ways
};

class FrameTransport : public Transport {
 public:
  /// Where this worker can be reached; known from the start.
  virtual wire::Address address() const = 0;
  /// Largest slot whose fragments fit a frame; a job with larger ones cannot be joined.
  virtual uint32_t max_slot_bytes() const = 0;
  /// True if it can receive what is sent to a multicast group.
  virtual bool takes_groups() const { return false; }
  /// The failures of this end's sends, in words; empty: none. From any thread.
  virtual std::string trouble() const { return {}; }
  /// Another one by the same way, for another job of the same worker. It is used like any other, by
  /// another thread. Its reopen() follows that of the first one, from open_frame_transport().
  virtual Result<std::unique_ptr<FrameTransport>> share() = 0;
  /// Receives what the switch sends to `group`, too, until reopen(). Called before bind(), and only
  /// if takes_groups().
  virtual Result<void> join_group(const wire::Address&) { return {}; }
  /// From now on packets are sent to and taken from this switch for this job; before, none are.
  virtual void bind(const FrameBinding& binding) = 0;
  /// Connects anew, after the switch was restarted; bind() must follow, and the address may be
  /// another. On failure, try again. Nobody else uses the transport meanwhile but by wake() and
  /// counters().
  virtual Result<void> reopen(Nanos timeout_ns) = 0;
};

/// Signature of the factory that a transport library exports; see transport/dpdk/dpdk_transport.h.
using FrameTransportOpen = FrameTransport* (*)(const char* url, int64_t timeout_us, int* status,
                                               char* error_text, size_t error_text_bytes);

/// Opens the transport of a udp:, dpdk: or memif: URL. The latter two live in libina-dpdk.so beside
/// libina or on the loader's path: loaded here, and never unloaded, because DPDK's threads stay.
Result<std::unique_ptr<FrameTransport>> open_frame_transport(const Url& url, Nanos timeout_ns);

}  // namespace ina::client

// A member's way to the switch, with what each kind of port keeps for one member. A member is a
// worker, or a fallback server.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <variant>

#include "io/shm/shm_port.h"
#include "switchd/memory/handles.h"
#include "wire/frame.h"

namespace ina::switchd {

class PortKind;

/// On the shm port.
struct ShmWay {
  /// Memory that the member has registered.
  struct Registration {
    Handles::Share share;
    uint64_t page_table_bytes = 0;  ///< the switch's, charged to the job's owner
  };
  std::unique_ptr<io::shm::WorkerSession> session = {};
  std::map<uint32_t, Registration> registered = {};  ///< by number
  bool takes_buffers = false;  ///< reads results where a result buffer has them
};

/// At an Ethernet port.
struct FrameWay {
  uint32_t port = 0;  ///< in config order
  wire::Address address = {};
  bool multicast = false;                      ///< results by the job's group
  std::optional<wire::TagKeys> tag_keys = {};  ///< if frames carry tags
};

struct Way {
  PortKind* kind = nullptr;  ///< nullptr: the member has no place
  std::variant<std::monostate, ShmWay, FrameWay> own;
  bool parks = false;  ///< keeps sums for the switch while somebody is slow

  // nullptr: it is of another kind.
  ShmWay* shm() { return std::get_if<ShmWay>(&own); }
  const ShmWay* shm() const { return std::get_if<ShmWay>(&own); }
  const FrameWay* frames() const { return std::get_if<FrameWay>(&own); }
  FrameWay* frames() { return std::get_if<FrameWay>(&own); }
};

}  // namespace ina::switchd

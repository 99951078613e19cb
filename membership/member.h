// A member as joining and coming back see it: the owner of a transport, and of the protocol that it
// speaks over it.
#pragma once

#include <memory>

#include "control/messages.h"
#include "fragments/engine.h"
#include "fragments/transport.h"
#include "transport/frame_transport.h"

namespace ina::membership {

class Member {
 public:
  virtual ~Member() = default;

  /// Takes the frames that carry its packets, before the switch is asked for a place.
  virtual void open(std::unique_ptr<client::FrameTransport> frames) = 0;
  /// It has a place. Its transport follows.
  virtual void begin(const client::EngineConfig& config) = 0;
  /// `transport`, of a new switch, is about to be attached: makes memory known to both.
  virtual void register_memory(client::Transport& transport) = 0;
  /// It is attached, with `transport`; nullptr: with the frames that it has.
  virtual void connect(std::unique_ptr<client::Transport> transport) = 0;
  /// Between begin() and the begin of the job: the fallback server was started again.
  virtual void set_epoch(uint32_t epoch) = 0;
};

}  // namespace ina::membership

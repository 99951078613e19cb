// The control connection of one job and its groups to the switch above: a thread that connects,
// sends what the conductor has to say, and keeps what the switch says. The conductor never waits
// for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "control/messages.h"
#include "switchd/conductor_events.h"
#include "switchd/config/config.h"

namespace ina::switchd {

class Uplink {
 public:
  /// There is no connection any more, or none came about.
  struct Lost {
    ina_status status = INA_ERR_SWITCH_LOST;  ///< INA_ERR_REFUSED: another attempt is of no use
    std::string text;
  };
  /// An attempt to connect has failed; others follow.
  struct Failed {
    std::string text;
  };
  using Event = std::variant<control::Answer, Lost, Failed>;

  /// `rings`: when there is an event; it must outlive this.
  Uplink(config::UplinkConfig config, ConductorEvent& rings);
  /// What was said is still sent, if there is a connection. Waits for nobody.
  ~Uplink();
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  /// Connects anew, for `patience_ns` at most, and says `first`: a Join or Rejoin, to which the
  /// token is added. Where that fails, or the connection ends, there is one event Lost.
  void open(control::request::Message first, Nanos patience_ns);
  /// Over the connection that there is; without one it is dropped.
  void say(control::request::Message message, std::optional<uint32_t> channel = std::nullopt);
  std::optional<Event> next();

 private:
  class Line;
  const std::shared_ptr<Line> line_;  ///< the thread's, too, which may outlive this
};

}  // namespace ina::switchd

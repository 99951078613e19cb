// The switch's messages to the service manager that started it (systemd, Type=notify). Without a
// service manager, or in a build without libsystemd, there are none.
#pragma once

#include "wire/types.h"

namespace ina::switchd {

class ServiceManager {
 public:
  /// How often alive() is to be said, twice as often as the manager asks for; 0: never.
  static Nanos heartbeat_ns();
  /// All packet loops have answered. The first time this says that the switch serves.
  void alive();
  /// The switch reads its configuration again: until reloaded(), or until alive() of a switch that
  /// started again for that.
  static void reloading();
  static void reloaded();
  /// The switch ends, as it was told to.
  static void stopping();

 private:
  bool serving_ = false;
};

}  // namespace ina::switchd

#include "switchd/startup/service_manager.h"

#ifdef INA_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

#include <cinttypes>

#include "common/clock.h"
#endif

namespace ina::switchd {

#ifdef INA_HAVE_SYSTEMD

Nanos ServiceManager::heartbeat_ns() {
  uint64_t interval_us = 0;
  if (::sd_watchdog_enabled(0, &interval_us) <= 0) return 0;
  return static_cast<Nanos>(interval_us) * 1000 / 2;
}

void ServiceManager::alive() {
  ::sd_notify(0, serving_ ? "WATCHDOG=1" : "READY=1\nWATCHDOG=1");
  serving_ = true;
}

void ServiceManager::reloading() {
  ::sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRId64, now_ns() / 1000);
}

void ServiceManager::reloaded() {
  ::sd_notify(0, "READY=1");
}

void ServiceManager::stopping() {
  ::sd_notify(0, "STOPPING=1");
}

#else

Nanos ServiceManager::heartbeat_ns() {
  return 0;
}

void ServiceManager::alive() {
  serving_ = true;
}

void ServiceManager::reloading() {}

void ServiceManager::reloaded() {}

void ServiceManager::stopping() {}

#endif

}  // namespace ina::switchd

// The attacker's knowledge: all facts that a reader of its victim's link can learn, keys included.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "wire/frame.h"

namespace ina::hostile {

/// A worker as its frames show it.
struct Worker {
  wire::Address address;
  JobId job{};
  uint64_t key = 0;
  uint32_t epoch = 0;
  uint32_t seq = 0;  ///< of a fragment that was under way
};

/// A job that belongs to the attacker: its workers are on the attacker's host, one UDP port each.
struct Tenant {
  JobId job{};
  uint64_t key = 0;
  uint32_t epoch = 0;
  uint32_t window = 0;
  std::vector<uint16_t> udp_ports;  ///< by rank
};

struct Facts {
  std::string interface;
  uint64_t seed = 1;
  uint32_t slot_bytes = 0;
  wire::Address switch_address;  ///< as the attacker's port has it
  wire::Address own;
  wire::Address kernel;     ///< the switch's own machine as a host of the network: mac and ip
  wire::MacAddress sink{};  ///< of a host that takes and ignores honest traffic
  std::vector<Worker> victims;
  std::map<std::string, Tenant> tenants;
  std::vector<std::string> captured;  ///< whole frames of the victims and to them
};

/// Throws nlohmann::json::exception or std::invalid_argument. tests/net/hostile.py writes the file.
Facts parse_facts(const nlohmann::json& json);
Tenant parse_tenant(const nlohmann::json& json);

}  // namespace ina::hostile

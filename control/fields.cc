#include "control/fields.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace ina::control {

namespace {

using Json = nlohmann::json;

bool is_unsigned(const Json& value, uint64_t most) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= most;
}
bool are_unsigned(const Json& value, uint64_t most, size_t count) {
  return value.is_array() && value.size() == count &&
         std::ranges::all_of(value, [most](const Json& one) { return is_unsigned(one, most); });
}
bool is_text(const Json& value) {
  return value.is_string();
}
bool is_flag(const Json& value) {
  return value.is_boolean();
}
bool is_u32(const Json& value) {
  return is_unsigned(value, UINT32_MAX);
}
bool is_u64(const Json& value) {
  return is_unsigned(value, UINT64_MAX);
}
/// Microseconds that are nanoseconds of 64 bits.
bool is_time(const Json& value) {
  return is_unsigned(value, INT64_MAX / 1000);
}
/// An ina_status, or, over TCP, the switch's status.
bool is_status(const Json& value) {
  return value.is_object() ||
         (value.is_number_integer() && value.get<int64_t>() <= 1 && value.get<int64_t>() >= -1000);
}

struct Field {
  std::string_view name;
  bool (*fits)(const Json&);
  std::string_view type;  ///< for the sentence
};

std::string problem_of(const Json& object, std::span<const Field> fields) {
  for (const Field& field : fields)
    if (const auto found = object.find(field.name); found != object.end() && !field.fits(*found))
      return "'" + std::string(field.name) + "' is not " + std::string(field.type);
  return {};
}

bool is_shm(const Json& value) {
  static constexpr std::string_view kNumber = "a number of 32 bits";
  static constexpr Field kFields[] = {{"layout", is_u32, kNumber},
                                      {"tx_depth", is_u32, kNumber},
                                      {"rx_depth", is_u32, kNumber},
                                      {"result_rows", is_u32, kNumber},
                                      {"side_rows", is_u32, kNumber}};
  return value.is_object() && problem_of(value, kFields).empty();
}
bool is_address(const Json& value) {
  static constexpr Field kFields[] = {
      {"mac", [](const Json& mac) { return are_unsigned(mac, 255, 6); }, "6 bytes"},
      {"ip", is_u32, "an address"},
      {"udp_port", [](const Json& port) { return is_unsigned(port, 65535); }, "a port"}};
  return value.is_object() && problem_of(value, kFields).empty();
}
bool is_tag(const Json& value) {
  constexpr auto kKey = [](const Json& key) { return are_unsigned(key, UINT64_MAX, 2); };
  static constexpr Field kFields[] = {
      {"algorithm", is_text, "a text"}, {"key", kKey, "a key"}, {"payload_key", kKey, "a key"}};
  return value.is_object() && problem_of(value, kFields).empty();
}

constexpr std::string_view kText = "a text";
constexpr std::string_view kFlag = "true or false";
constexpr std::string_view kNumber = "a number of 32 bits";
constexpr std::string_view kLong = "a number of 64 bits";

constexpr Field kFields[] = {
    {"type", is_text, kText},
    {"status", is_status, "a status"},
    {"text", is_text, kText},
    {"retry", is_flag, kFlag},
    {"library", is_text, kText},
    {"job", is_text, kText},
    {"job_id", is_u32, kNumber},
    {"job_key", is_u64, kLong},
    {"epoch", is_u32, kNumber},
    {"window", is_u32, kNumber},
    {"slot_bytes", is_u32, kNumber},
    {"lanes", is_u32, kNumber},
    {"policy", is_text, kText},
    {"home", is_text, kText},
    {"instance", is_u32, kNumber},
    {"rto_min_us", is_time, "a time"},
    {"rto_max_us", is_time, "a time"},
    {"ecn", is_flag, kFlag},
    {"aggregator_window", is_flag, kFlag},
    {"priority_max", [](const Json& value) { return is_unsigned(value, 255); }, "a priority"},
    {"in_switch", is_u32, kNumber},
    {"park_room", is_u32, kNumber},
    {"shm", is_shm, "an object of numbers of 32 bits"},
    {"address", is_address, "an address"},
    {"group", is_address, "an address"},
    {"tag", is_tag, "an algorithm and two keys"},
    {"missing",
     [](const Json& value) { return value.is_array() && std::ranges::all_of(value, is_u32); },
     "a list of ranks"},
    {"fallback_missing", is_flag, kFlag},
    {"buffers_shared", is_u64, kLong},
    {"number", is_u32, kNumber},
    {"first_unit", [](const Json& value) { return value.is_null() || is_u32(value); }, kNumber},
    {"bytes", is_u64, kLong},
    {"workers", is_u32, kNumber},
    {"start", is_u64, kLong},
    {"bind_at_once", is_flag, kFlag},
};

}  // namespace

std::string problem_of_answer(const Json& message) {
  if (!message.is_object()) return "it is no JSON object";
  if (!message.contains("type")) return "'type' is missing";
  return problem_of(message, kFields);
}

}  // namespace ina::control

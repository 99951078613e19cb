#include "control/diagnosis/status_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "wire/drop_reason.h"

namespace ina::diagnosis {

using Json = nlohmann::json;

const Json& child(const Json& json, const char* key) {
  static const Json kNull;
  if (!json.is_object()) return kNull;
  const auto it = json.find(key);
  return it == json.end() ? kNull : *it;
}

uint64_t number(const Json& json, const char* key) {
  const Json& value = child(json, key);
  return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
}

double real(const Json& json, const char* key) {
  const Json& value = child(json, key);
  return value.is_number() ? value.get<double>() : 0.0;
}

std::string text(const Json& json, const char* key) {
  const Json& value = child(json, key);
  return value.is_string() ? printable(value.get<std::string>()) : "?";
}

std::vector<uint64_t> ranks(const Json& json, const char* key) {
  std::vector<uint64_t> found;
  for (const Json& rank : child(json, key))
    if (rank.is_number_unsigned()) found.push_back(rank.get<uint64_t>());
  return found;
}

std::string ranks_text(const std::vector<uint64_t>& ranks) {
  constexpr size_t kLarge = 16;
  std::vector<std::string> runs;  // of a large set, as wire::ranks_text() has them
  for (size_t first = 0, end; first < ranks.size(); first = end) {
    for (end = first + 1;
         ranks.size() > kLarge && end < ranks.size() && ranks[end] == ranks[end - 1] + 1;)
      ++end;
    runs.push_back(end - first == 1 ? fmt::to_string(ranks[first])
                                    : fmt::format("{}-{}", ranks[first], ranks[end - 1]));
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(runs, ", "));
}

std::string with_separators(uint64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string job_label(const Json& job) {
  const std::string owner =
      child(job, "owner").is_string() ? text(job, "owner") + "/" : std::string();
  return owner + text(job, "name");
}

std::string_view describe_drop(const std::string& counter) {
  for (size_t i = 0; i < kDropReasons; ++i)
    if (const auto reason = static_cast<DropReason>(i); name(reason) == counter)
      return describe(reason);
  return "";
}

}  // namespace ina::diagnosis

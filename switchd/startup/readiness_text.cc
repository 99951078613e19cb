// The findings of the self-test, for people and for programs.
#include <fmt/format.h>

#include <algorithm>

#include "common/json_schema.h"
#include "common/text_table.h"
#include "switchd/startup/readiness.h"

namespace ina::switchd {

namespace {

using Json = nlohmann::json;

std::string verdict_text(const SelfTest& result) {
  const auto count = [&](Readiness state) {
    return std::ranges::count(result.rows, state, &SelfTestRow::state);
  };
  switch (result.verdict()) {
    case Readiness::kReady:
      return "ready";
    case Readiness::kImprove:
      return fmt::format("the switch would serve; {} of {} points can be improved",
                         count(Readiness::kImprove), result.rows.size());
    case Readiness::kMissing:
      break;
  }
  return fmt::format("not ready: {} of {} points are missing", count(Readiness::kMissing),
                     result.rows.size());
}

}  // namespace

std::string format_self_test(const SelfTest& result) {
  TextTable table({"CHECK", "STATE", "FOUND"}, {true, true, true});
  std::string changes;
  for (const SelfTestRow& row : result.rows) {
    table.add({row.check, std::string(readiness_name(row.state)), row.found});
    for (const std::string& change : row.changes)
      changes += fmt::format("  {} ({}): {}\n", row.check, readiness_name(row.state), change);
  }
  std::string text = table.str();
  if (!changes.empty()) text += "\nto change:\n" + changes;
  if (!result.not_checked.empty()) text += "\n";
  for (const std::string& what : result.not_checked) text += "not checked: " + what + "\n";
  return text + "\n" + verdict_text(result) + "\n";
}

Json self_test_json(const SelfTest& result) {
  Json checks = Json::array();
  for (const SelfTestRow& row : result.rows)
    checks.push_back({{"check", row.check},
                      {"state", readiness_name(row.state)},
                      {"found", row.found},
                      {"change", row.changes}});
  return {{"schema", kJsonSchema},
          {"verdict", readiness_name(result.verdict())},
          {"ready", result.verdict() == Readiness::kReady},
          {"checks", checks},
          {"not_checked", result.not_checked}};
}

}  // namespace ina::switchd

#include "programs/inactl/trace_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "common/text_table.h"
#include "programs/inactl/status_json.h"

namespace ina::cli {

namespace {

using Json = nlohmann::json;

std::string number_or_dash(const Json& packet, const char* key) {
  return child(packet, key).is_number() ? std::to_string(number(packet, key)) : "-";
}

/// Ranks as the bits of a bitmap, in hexadecimal: 64 ranks fit into a column.
std::string bits_text(const Json& packet, const char* key) {
  uint64_t bits = 0;
  for (const uint64_t rank : ranks(packet, key))
    if (rank < 64) bits |= uint64_t{1} << rank;
  return bits == 0 ? "-" : fmt::format("{:#x}", bits);
}

std::string verdict_text(const Json& packet) {
  return child(packet, "reason").is_string()
             ? fmt::format("{}: {}", text(packet, "verdict"), text(packet, "reason"))
             : text(packet, "verdict");
}

std::string sent_text(const Json& packet) {
  std::vector<std::string> sent;
  for (const Json& one : child(packet, "sent"))
    sent.push_back(fmt::format("{} to {}", text(one, "type"), text(one, "to")));
  return fmt::format("{}", fmt::join(sent, ", "));
}

}  // namespace

std::string format_trace(const Json& trace, size_t width) {
  TextTable table({"AT US", "LANE", "PORT", "RANK", "TYPE", "SEQ", "OPERATION", "BITMAP",
                   "PRIORITY", "VERDICT", "SLOT", "STATE", "HELD", "SENT"},
                  {false, false, true, false, true, false, false, false, false, true, false, true,
                   false, true});
  table.set_expendable({7, 8, 12, 6, 1, 10, 11});
  std::map<uint64_t, std::string> operations;
  for (const Json& packet : child(trace, "packets")) {
    const bool has_slot = child(packet, "slot").is_number();
    table.add({fmt::format("{:.1f}", real(packet, "at_us")), number_or_dash(packet, "lane"),
               text(packet, "port"),
               child(packet, "rank").is_number() ? number_or_dash(packet, "rank") : "fallback",
               text(packet, "type"), number_or_dash(packet, "seq"),
               number_or_dash(packet, "operation"), bits_text(packet, "bitmap"),
               number_or_dash(packet, "priority"), verdict_text(packet),
               number_or_dash(packet, "slot"), has_slot ? text(packet, "slot_state") : "-",
               bits_text(packet, "held"), sent_text(packet)});
    if (child(packet, "operation_text").is_string())
      operations.emplace(number(packet, "operation"), text(packet, "operation_text"));
  }
  std::string out = fmt::format("job {} (id {})\n", text(trace, "job"), number(trace, "id"));
  if (!table.empty()) out += "\n" + table.str(width);
  for (const auto& [number, said] : operations)
    out += (number == operations.begin()->first ? "\n" : "") + said + "\n";
  return wrapped(out, width);
}

}  // namespace ina::cli

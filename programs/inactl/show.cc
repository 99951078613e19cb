#include "programs/inactl/show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "common/text_table.h"
#include "programs/inactl/status_format.h"
#include "programs/inactl/status_json.h"

namespace ina::cli {

namespace {

using Json = nlohmann::json;

/// Lines of a name and a value, the values below each other.
class Lines {
 public:
  void add(const char* name, const std::string& value) {
    if (!value.empty()) out_ += fmt::format("  {:<15}{}\n", name, value);
  }
  const std::string& str() const { return out_; }

 private:
  std::string out_;
};

/// "none", or "0, 3 of 4".
std::string ranks_of(const Json& job, const char* key) {
  const auto found = ranks(job, key);
  if (found.empty()) return fmt::format("none of {}", number(job, "world_size"));
  return fmt::format("{} of {}", fmt::join(found, ", "), number(job, "world_size"));
}

std::string contributions_text(const Json& job) {
  const uint64_t absorbed = number(job, "absorbed");
  const uint64_t all = absorbed + number(job, "bypassed");
  if (all == 0) return "none yet";
  return fmt::format("{}, {} of them in slots ({:.1f} %), {} found no slot", with_separators(all),
                     with_separators(absorbed),
                     100.0 * static_cast<double>(absorbed) / static_cast<double>(all),
                     with_separators(number(job, "bypassed")));
}

std::string fragments_text(const Json& job) {
  std::string out = fmt::format("{} completed in slots, {} by the fallback",
                                with_separators(number(job, "results")),
                                with_separators(number(job, "fallback_results")));
  if (child(job, "parked").is_number())
    out += fmt::format(", {} by workers that kept a parked sum",
                       with_separators(number(job, "parker_results")));
  return out;
}

/// The line for frames of the job's workers that the switch dropped.
void add_unheard(const Json& job, Lines& lines) {
  for (const Json& worker : child(job, "unheard"))
    lines.add("dropped frames", text(worker, "text"));
}

std::string known(const std::vector<std::string>& names, const char* what) {
  return names.empty() ? fmt::format("; there is no {}", what)
                       : fmt::format("; there are {}", fmt::join(names, ", "));
}

}  // namespace

Result<Json> find_job(const Json& status, const std::string& name) {
  std::vector<Json> found;
  std::vector<std::string> labels;
  std::vector<std::string> all;
  for (const Json& job : child(status, "jobs")) {
    all.push_back(job_label(job));
    if (text(job, "name") != name && job_label(job) != name) continue;
    found.push_back(job);
    labels.push_back(job_label(job));
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1)
    return fail(INA_ERR_INVALID, fmt::format("{} jobs are named '{}': say which is meant, {}",
                                             found.size(), name, fmt::join(labels, " or ")));
  return fail(INA_ERR_REFUSED, fmt::format("there is no job '{}'{}", name, known(all, "job")));
}

std::string format_job(const Json& job) {
  Lines lines;
  lines.add("state", fmt::format("{}, epoch {}", text(job, "state"), number(job, "epoch")));
  lines.add("now", waiting_text(job));
  lines.add("ranks joined", ranks_of(job, "joined"));
  if (!ranks(job, "missing").empty()) lines.add("ranks missing", ranks_of(job, "missing"));
  if (!ranks(job, "left").empty()) lines.add("ranks left", ranks_of(job, "left"));
  if (child(job, "group_of").is_number())
    lines.add("group of", fmt::format("job {}, its ranks {}", number(job, "group_of"),
                                      fmt::join(ranks(job, "root_ranks"), ", ")));
  lines.add("window", fmt::format("{} fragments", with_separators(number(job, "window"))));
  lines.add("slots", slots_text(job));
  lines.add("memory", format_bytes(number(job, "memory_bytes")));
  lines.add("priority", fmt::format("at most {}", number(job, "priority_max")));
  lines.add("contributions", contributions_text(job));
  lines.add("preempted", fmt::format("{} slots", with_separators(number(job, "preempted"))));
  lines.add("fragments", fragments_text(job));
  if (child(job, "parked_now").is_number())
    lines.add("parked", fmt::format("{} now, {} at most, {} in all",
                                    with_separators(number(job, "parked_now")),
                                    with_separators(number(job, "parked_now_peak")),
                                    with_separators(number(job, "parked"))));
  if (child(job, "reserved_s").is_number())
    lines.add("reserved",
              fmt::format("for its workers, for another {} s", number(job, "reserved_s")));
  add_unheard(job, lines);
  return fmt::format("job {} (id {})\n{}", job_label(job), number(job, "id"), lines.str());
}

Result<Json> find_ports(const Json& status, const std::string& name) {
  Json found = Json::array();
  std::vector<std::string> all;
  for (const Json& port : child(status, "ports")) {
    all.push_back(text(port, "name"));
    if (name.empty() || text(port, "name") == name) found.push_back(port);
  }
  if (found.empty() && !name.empty())
    return fail(INA_ERR_REFUSED, fmt::format("there is no port '{}'{}", name, known(all, "port")));
  return found;
}

std::string format_port(const Json& port) {
  Lines lines;
  lines.add("type", text(port, "type"));
  if (child(port, "link").is_string()) lines.add("link", text(port, "link"));
  if (child(port, "gone").is_string()) lines.add("gone", text(port, "gone"));
  if (const Json& blocked = child(port, "blocked"); blocked.is_object())
    lines.add("blocked",
              fmt::format("for {:.0f} s: {}", real(blocked, "for_s"), text(blocked, "text")));
  const auto traffic = [&](const char* packets, const char* bytes) {
    return fmt::format("{} packets, {} of payload", with_separators(number(port, packets)),
                       format_bytes(number(port, bytes)));
  };
  lines.add("received", traffic("rx_packets", "rx_bytes"));
  lines.add("sent", traffic("tx_packets", "tx_bytes"));
  if (child(port, "lost_before").is_number())
    lines.add("lost before",
              fmt::format("{} frames, for which the kernel or the device had no room",
                          with_separators(number(port, "lost_before"))));
  if (child(port, "forwarded").is_number()) {
    lines.add("for others", fmt::format("{} frames forwarded, {} flooded, from here",
                                        with_separators(number(port, "forwarded")),
                                        with_separators(number(port, "flooded"))));
    lines.add("passed on", format_bytes(number(port, "forwarded_bytes")) + " of whole frames");
    lines.add("addresses", fmt::format("{} learned here, {} came from other ports",
                                       with_separators(number(port, "learned")),
                                       with_separators(number(port, "moved"))));
    lines.add("from others", fmt::format("{} frames sent ({}), {} lost",
                                         with_separators(number(port, "bridged_sent")),
                                         format_bytes(number(port, "bridged_sent_bytes")),
                                         with_separators(number(port, "bridged_lost"))));
    lines.add("to the host", fmt::format("{} frames, {} ARP and ping answered",
                                         with_separators(number(port, "delivered")),
                                         with_separators(number(port, "answered"))));
    lines.add("between loops",
              fmt::format("{} frames taken, {} given", with_separators(number(port, "handed_over")),
                          with_separators(number(port, "tx_handed_over"))));
  }
  std::string drops;
  if (const Json& reasons = child(port, "drops"); reasons.is_object())
    for (const auto& [reason, count] : reasons.items())
      if (count.is_number_unsigned() && count != 0u)
        drops += fmt::format("  {:<15}{} packets: {}\n", printable(reason),
                             with_separators(count.get<uint64_t>()), describe_drop(reason));
  return fmt::format("port {}\n{}{}", text(port, "name"), lines.str(),
                     drops.empty() ? "  drops          none\n" : "  drops:\n" + drops);
}

}  // namespace ina::cli

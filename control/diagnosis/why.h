// `inactl why`: why a job does not advance, or why few of its contributions are added in slots. The
// reasons are found only in statuses that the switch gave one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "common/result.h"

namespace ina::diagnosis {

/// Looks that `why` is meant for. With fewer, no rank is said to be slower than the others: one of
/// two ranks is the late one in each look by chance.
inline constexpr size_t kLooks = 8;

struct Reason {
  std::string cause;            ///< for programs; docs/administration.md lists them
  std::string text;             ///< a sentence
  std::vector<uint64_t> ranks;  ///< that it is about
  /// By place in `ranks`: the process and its host, or the address; empty: unknown.
  std::vector<std::string> peers = {};
};

/// The verdict on a job, or on a group of its ranks.
struct JobVerdict {
  std::string job;  ///< as inactl takes it
  uint64_t id = 0;
  std::string state;
  bool advances = false;          ///< something was completed between the looks
  uint64_t fragments = 0;         ///< completed between them
  std::optional<double> offload;  ///< share of contributions that were added in a slot
  bool recent = false;            ///< `offload` is of the time between the looks; else of all time
  std::vector<Reason> reasons;    ///< the most telling first
};

struct Verdict {
  double seconds = 0;  ///< between the first look and the last
  std::vector<JobVerdict> jobs;
  std::vector<Reason> of_switch;  ///< that concern all jobs, and all other traffic
};

/// `looks`: statuses of one switch, the oldest first, some hundredths of a second apart. `job`:
/// "NAME" or "OWNER/NAME", with its groups; empty: all jobs. INA_ERR_REFUSED: there is none of that
/// name; the text says what the switch has.
Result<Verdict> why(std::span<const nlohmann::json> looks, const std::string& job);

/// The texts of one job's reasons, for an error of an operation that waits. The status is of one
/// moment, and may have no more than the job, its root and its groups. Never empty.
std::string why_text(const nlohmann::json& status, uint64_t job);

std::string format_verdict(const Verdict& verdict);

/// {"version": 1, "seconds", "jobs": [{"job", "id", "state", "advances", "fragments",
/// "offload_ratio", "reasons": [{"cause", "ranks", "peers", "text"}]}], "switch": [a reason, ...]}
nlohmann::json verdict_json(const Verdict& verdict);

}  // namespace ina::diagnosis

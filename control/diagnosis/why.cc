#include "control/diagnosis/why.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "control/diagnosis/status_json.h"

namespace ina::diagnosis {

namespace {

using Json = nlohmann::json;

constexpr double kGoodOffload = 0.9;
constexpr double kFull = 0.9;                 // of slots, or of a window
constexpr double kBusy = 0.95;                // of a packet loop's time
constexpr uint64_t kManyContributions = 100;  // for a share of them to mean something
constexpr double kManyPreempted = 0.05;       // of contributions

bool contains(const std::vector<uint64_t>& ranks, uint64_t rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

/// A job in all looks that have it, and the switch beside it.
struct Case {
  std::span<const Json> looks;
  std::vector<const Json*> job;  ///< by look, the oldest first; never empty
  double seconds = 0;

  const Json& now() const { return *job.back(); }
  const Json& status() const { return looks.back(); }
  const Json& aggregator() const { return child(status(), "aggregator"); }
  uint64_t grown(const char* counter) const {
    const uint64_t before = number(*job.front(), counter);
    return std::max(number(now(), counter), before) - before;
  }
  /// Every look found the same oldest fragment, and nothing was contributed in between. The
  /// fallback's answers then are repeats, to ranks that did not get the first ones.
  bool is_stuck() const {
    const bool same = std::ranges::all_of(job, [this](const Json* look) {
      const Json& oldest = child(*look, "oldest_fragment");
      return oldest.is_number() && oldest == child(now(), "oldest_fragment");
    });
    return same && grown("absorbed") == 0 && grown("bypassed") == 0;
  }
  uint64_t completed() const {
    if (is_stuck()) return 0;
    return grown("results") + grown("fallback_results") + grown("parker_results");
  }
  bool is_static() const { return !child(now(), "slots_ceiling").is_number(); }
  std::string time() const { return fmt::format("{:.1f} s", seconds); }
};

std::string entry(const Json& job, const char* key, size_t index) {
  const Json& list = child(job, key);
  return list.is_array() && index < list.size() && list[index].is_string()
             ? printable(list[index].get<std::string>())
             : std::string();
}

/// The entry of `rank` in a list that goes with a list of ranks.
std::string peer_beside(const Json& job, const char* of, const char* peers, uint64_t rank) {
  const auto listed = ranks(job, of);
  const auto at = std::ranges::find(listed, rank);
  return at == listed.end() ? "" : entry(job, peers, static_cast<size_t>(at - listed.begin()));
}

/// "pid 4711 on node7", or "10.0.0.2:4711"; empty: it is not there.
std::string peer_of(const Case& c, uint64_t rank) {
  std::string peer = entry(c.now(), "peers", rank);
  // A switch of an earlier version says it of these alone.
  if (peer.empty()) peer = peer_beside(c.now(), "waiting_for", "waiting_for_peers", rank);
  if (peer.empty()) peer = peer_beside(c.now(), "stopped", "stopped_peers", rank);
  if (peer.empty()) peer = peer_beside(c.now(), "frozen", "frozen_peers", rank);
  // A process without an address is on the switch's host.
  if (peer.starts_with("pid ") && child(c.status(), "host").is_string())
    peer += " on " + text(c.status(), "host");
  return peer;
}

/// "rank 1 (rank 5 of the job, pid 4711 on node7)".
std::string who(const Case& c, const std::vector<uint64_t>& ranks) {
  std::vector<std::string> names;
  const auto of_job = diagnosis::ranks(c.now(), "root_ranks");
  for (const uint64_t rank : ranks) {
    std::vector<std::string> more;
    if (rank < of_job.size()) more.push_back(fmt::format("rank {} of the job", of_job[rank]));
    if (std::string peer = peer_of(c, rank); !peer.empty()) more.push_back(std::move(peer));
    names.push_back(more.empty() ? std::to_string(rank)
                                 : fmt::format("{} ({})", rank, fmt::join(more, ", ")));
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(names, ", "));
}

const char* verb(const std::vector<uint64_t>& ranks, const char* one, const char* several) {
  return ranks.size() == 1 ? one : several;
}

// ---- jobs that have not begun, or are at their end

void explain_joining(const Case& c, std::vector<Reason>& reasons) {
  const auto missing = ranks(c.now(), "missing");
  if (!missing.empty()) {
    const bool group = child(c.now(), "group_of").is_number();
    std::string text = fmt::format(
        "{} of {} {} not joined: {} {}", who(c, missing), number(c.now(), "world_size"),
        verb(missing, "has", "have"), verb(missing, "its process has", "their processes have"),
        group ? std::string("called ina_split, and not come to the group yet")
              : fmt::format("not called ina_init with this job's name, or {} refused (`refused` in "
                            "the switch's log)",
                            verb(missing, "was", "were")));
    if (child(c.now(), "reserved_s").is_number())
      text += fmt::format("; the job waits {} s more for them", number(c.now(), "reserved_s"));
    reasons.push_back({"ranks_missing", text, missing});
  }
}

void explain_rejoining(const Case& c, std::vector<Reason>& reasons) {
  const auto missing = ranks(c.now(), "missing");
  if (!missing.empty())
    reasons.push_back({"ranks_missing",
                       fmt::format("the switch was restarted, and {} {} not come back: look at "
                                   "their processes, and at the way to the switch",
                                   who(c, missing), verb(missing, "has", "have")),
                       missing});
}

// ---- jobs at several switches

void explain_tree(const Case& c, std::vector<Reason>& reasons) {
  const Json& tree = child(c.now(), "tree");
  const Json& above = child(tree, "above");
  if (text(above, "state") == "away")
    reasons.push_back({"switch_above_away",
                       fmt::format("the switch above ({}) is away, and all workers wait for it: {}",
                                   printable(text(above, "url")), printable(text(above, "text"))),
                       {}});
  for (const Json& below : child(tree, "below"))
    if (text(below, "state") == "away") {
      const auto those = ranks(below, "ranks");
      reasons.push_back({"switch_below_away",
                         fmt::format("a switch below is away, with {}", ranks_text(those)), those});
    }
}

/// The job gathers, and those who are here cannot tell the switch above.
void explain_no_way_up(const Case& c, std::vector<Reason>& reasons) {
  const Json& above = child(child(c.now(), "tree"), "above");
  if (text(above, "state") != "joining" || text(above, "text").empty()) return;
  reasons.push_back({"no_way_up",
                     fmt::format("the switch above ({}), where others may be, has not answered: {}",
                                 printable(text(above, "url")), printable(text(above, "text"))),
                     {}});
}

/// Nobody here is waited for.
void explain_wait_above(const Case& c, std::vector<Reason>& reasons) {
  const Json& above = child(child(c.now(), "tree"), "above");
  if (text(above, "state") != "running" || !ranks(c.now(), "waiting_for").empty()) return;
  reasons.push_back({"waits_above",
                     fmt::format("no worker of this switch is waited for: `inactl why` at the "
                                 "switch above ({}) says for whom that waits",
                                 printable(text(above, "url"))),
                     {}});
}

// ---- jobs that run

void explain_fallback(const Case& c, std::vector<Reason>& reasons) {
  if (child(c.now(), "fallback_missing") == true)
    reasons.push_back({"fallback_missing",
                       "the fallback server (ina-psd) is gone, or was never there: it must be "
                       "started (again) for this switch",
                       {}});
}

/// Ranks whose frames do not arrive. A rank of which no frame was seen may have sent nothing, and
/// counts only if the job waits for it.
void explain_unheard(const Case& c, std::vector<Reason>& reasons) {
  if (c.completed() != 0) return;  // it is of the past
  const auto late = ranks(c.now(), "waiting_for");
  for (const Json& worker : child(c.now(), "unheard")) {
    std::vector<uint64_t> of;
    if (child(worker, "rank").is_number_unsigned()) of.push_back(number(worker, "rank"));
    const bool dropped = child(worker, "reason").is_string();
    if (!dropped && (of.empty() || !contains(late, of.front()))) continue;
    std::string said = text(worker, "text");
    if (!of.empty() && !peer_of(c, of.front()).empty()) said = who(c, of) + ": " + said;
    reasons.push_back({dropped ? "frames_dropped" : "rank_not_heard", said, std::move(of)});
  }
}

/// Names the ranks that have sent nothing, if that is not known to be wrong.
std::string silence_text(const Case& c) {
  std::string text;
  for (const Json& worker : child(c.now(), "unheard"))
    if (!child(worker, "reason").is_string()) text += "; " + diagnosis::text(worker, "text");
  return text;
}

/// Ranks that have not called a function, and others, whom the status lists by `key`, have.
void explain_collective(const Case& c, const char* key, const char* cause, const char* function,
                        std::vector<Reason>& reasons) {
  const auto asked = ranks(c.now(), key);
  if (asked.empty()) return;
  std::vector<uint64_t> missing;
  for (const uint64_t rank : ranks(c.now(), "joined"))
    if (!contains(asked, rank)) missing.push_back(rank);
  if (!missing.empty())
    reasons.push_back({cause,
                       fmt::format("{} {} called {}, and {} {} not: all ranks must, in the same "
                                   "place of their programs",
                                   ranks_text(asked), verb(asked, "has", "have"), function,
                                   who(c, missing), verb(missing, "has", "have")),
                       missing});
}

void explain_creates(const Case& c, std::vector<Reason>& reasons) {
  const auto missing = ranks(c.now(), "creating_lacks");
  if (missing.empty()) return;
  const auto asked = ranks(c.now(), "creating");
  reasons.push_back(
      {"group_missing",
       fmt::format("{} {} called ina_create_group, and {} {} not, with the same ranks and tag",
                   ranks_text(asked), verb(asked, "has", "have"), who(c, missing),
                   verb(missing, "has", "have")),
       missing});
}

/// Ranks that every look found the oldest fragment waiting for.
std::vector<uint64_t> always_late(const Case& c) {
  std::vector<uint64_t> late = ranks(c.now(), "waiting_for");
  for (const Json* look : c.job) {
    const auto then = ranks(*look, "waiting_for");
    std::erase_if(late, [&](uint64_t rank) { return !contains(then, rank); });
  }
  return late;
}

/// A switch that looked once cannot say for how long.
std::string since(const Case& c, const char* text) {
  return c.seconds > 0 ? fmt::format(fmt::runtime(text), c.time()) : std::string();
}

/// Ranks of the root job: those of a job that is no group are its own.
uint64_t root_rank(const Json& job, uint64_t rank) {
  const auto of_root = ranks(job, "root_ranks");
  return rank < of_root.size() ? of_root[rank] : rank;
}

uint64_t root_of(const Json& job) {
  return child(job, "group_of").is_number() ? number(job, "group_of") : number(job, "id");
}

/// The job or group of the same family in which this rank has contributed, and waits for others.
const Json* elsewhere(const Case& c, uint64_t rank) {
  for (const Json& other : child(c.status(), "jobs")) {
    if (number(other, "id") == number(c.now(), "id") || root_of(other) != root_of(c.now()))
      continue;
    const auto late = ranks(other, "waiting_for");
    if (late.empty()) continue;
    for (const uint64_t member : ranks(other, "joined"))
      if (root_rank(other, member) == root_rank(c.now(), rank) && !contains(late, member))
        return &other;
  }
  return nullptr;
}

/// The state of a rank that the job waits for; kinds from the most telling to unknown.
struct Late {
  enum class Kind {
    kStopped,
    kFrozen,
    kEnded,
    kBlocked,
    kLinkDown,
    kElsewhere,
    kUnknown
  } kind = Kind::kUnknown;
  uint64_t rank = 0;
  std::string place;  ///< the port whose link is down; the job in which it waits
};

std::vector<Late> late_ranks(const Case& c) {
  std::vector<Late> found;
  const auto late = ranks(c.now(), "waiting_for");
  for (size_t i = 0; i < late.size(); ++i) {
    Late one{Late::Kind::kUnknown, late[i], ""};
    const std::string process = entry(c.now(), "waiting_for_processes", i);
    const std::string port = entry(c.now(), "waiting_for_dead_links", i);
    if (process == "stopped") {
      one.kind = Late::Kind::kStopped;
    } else if (process == "frozen") {
      one.kind = Late::Kind::kFrozen;
    } else if (process == "ended") {
      one.kind = Late::Kind::kEnded;
    } else if (process == "blocked") {
      one.kind = Late::Kind::kBlocked;
    } else if (!port.empty()) {
      one.kind = Late::Kind::kLinkDown;
      one.place = port;
    } else if (const Json* other = elsewhere(c, late[i])) {
      one.kind = Late::Kind::kElsewhere;
      one.place = job_label(*other);
    }
    found.push_back(one);
  }
  return found;
}

/// "fragment 7 (operation 3: allreduce ...) waits for rank 1 (pid 4711)"
std::string waiting_text(const Case& c, const std::vector<uint64_t>& late) {
  const std::string operation = child(c.now(), "oldest_operation").is_string()
                                    ? fmt::format(" ({})", text(c.now(), "oldest_operation"))
                                    : "";
  return fmt::format("{}fragment {}{} {} for {}", since(c, "for {} at least, "),
                     number(c.now(), "oldest_fragment"), operation,
                     c.seconds > 0 ? "has waited" : "waits", who(c, late));
}

/// How processes are kept from running until somebody lets them.
struct Hold {
  Late::Kind kind;
  const char* key;  ///< of the status, of ranks that the job does not wait for
  const char* cause;
  const char* text;
};
constexpr Hold kHolds[] = {
    {Late::Kind::kStopped, "stopped", "process_stopped",
     ", by SIGSTOP or a debugger; SIGCONT lets it go on"},
    {Late::Kind::kFrozen, "frozen", "process_frozen",
     " by its control group; `systemctl thaw UNIT`, to unpause its container, or 0 in "
     "cgroup.freeze "
     "lets it go on"},
};

/// `waits`: of the ranks `late` that are held so, which the job waits for; empty if there are none.
/// Others may be held, too.
void explain_hold(const Case& c, const Hold& hold, std::string waits, std::vector<uint64_t> late,
                  std::vector<Reason>& reasons) {
  const auto others = ranks(c.now(), hold.key);
  if (!others.empty()) {
    const std::string them = who(c, others);
    waits += waits.empty() ? fmt::format("the {} of {} {} {}", verb(others, "process", "processes"),
                                         them, verb(others, "is", "are"), hold.key)
                           : fmt::format(", and so {} {} of {}, which {} contributed",
                                         verb(others, "is", "are"), verb(others, "that", "those"),
                                         them, verb(others, "has", "have"));
    late.insert(late.end(), others.begin(), others.end());
    std::ranges::sort(late);
  }
  if (!late.empty()) reasons.push_back({hold.cause, waits + hold.text, late});
}

/// Explains the holds of ranks that the job does not wait for.
void explain_holds(const Case& c, const std::vector<Late>& late, std::vector<Reason>& reasons) {
  for (const Hold& hold : kHolds)
    if (std::ranges::none_of(late, [&](const Late& one) { return one.kind == hold.kind; }))
      explain_hold(c, hold, "", {}, reasons);
}

void explain_late(const Case& c, const std::vector<Late>& late, Late::Kind kind,
                  std::vector<Reason>& reasons) {
  std::vector<uint64_t> these;
  std::vector<uint64_t> all;
  std::string place;
  for (const Late& one : late) {
    all.push_back(one.rank);
    if (one.kind != kind) continue;
    these.push_back(one.rank);
    place = one.place;
  }
  if (these.empty()) return;
  std::vector<uint64_t> there;
  for (const uint64_t rank : ranks(c.now(), "joined"))
    if (!contains(all, rank)) there.push_back(rank);
  const std::string waits = fmt::format("{}, and {} {} contributed", waiting_text(c, these),
                                        ranks_text(there), verb(there, "has", "have"));
  switch (kind) {
    case Late::Kind::kStopped:
    case Late::Kind::kFrozen: {
      const Hold& hold = *std::ranges::find(kHolds, kind, &Hold::kind);
      return explain_hold(
          c, hold, waits + verb(these, ": its process is ", ": their processes are ") + hold.key,
          these, reasons);
    }
    case Late::Kind::kBlocked:
      return reasons.push_back(
          {"process_blocked",
           waits + verb(these, ": its process waits", ": their processes wait") +
               " within the kernel (state D): for a disk, a file server or a driver",
           these});
    case Late::Kind::kEnded:
      return reasons.push_back({"process_ended",
                                waits + verb(these, ": its process has", ": their processes have") +
                                    " ended, and the job ends with it",
                                these});
    case Late::Kind::kLinkDown:
      return reasons.push_back(
          {"link_down", fmt::format("{}: the link of port {} is down", waits, place), these});
    case Late::Kind::kElsewhere:
      return reasons.push_back(
          {"waits_elsewhere",
           fmt::format("{}: {} in {}, which comes first", waits,
                       verb(these, "it waits itself", "they wait themselves"), place),
           {}});
    case Late::Kind::kUnknown:
      return reasons.push_back(
          {"rank_waited_for",
           fmt::format("{}: {} not called this operation yet, or {} not reach the switch", waits,
                       verb(these, "it has", "they have"),
                       verb(these, "its packets do", "their packets do")),
           these});
  }
}

void explain_leaving(const Case& c, std::vector<Reason>& reasons) {
  const auto left = ranks(c.now(), "left");
  std::vector<uint64_t> early, others;
  for (const uint64_t rank : ranks(c.now(), "waiting_for"))
    if (contains(left, rank)) early.push_back(rank);
  if (!early.empty())
    return reasons.push_back({"left_early",
                              fmt::format("{}, which {} called ina_finalize",
                                          waiting_text(c, early), verb(early, "has", "have")),
                              early});
  for (const uint64_t rank : ranks(c.now(), "joined"))
    if (!left.empty() && !contains(left, rank)) others.push_back(rank);
  explain_holds(c, {}, reasons);
  const std::string have = left.empty()
                               ? "some ranks have"
                               : fmt::format("{} {}", ranks_text(left), verb(left, "has", "have"));
  const std::string missing =
      others.empty() ? "" : fmt::format(": {} {} not", who(c, others), verb(others, "has", "have"));
  reasons.push_back(
      {"leaving",
       fmt::format("{} called ina_finalize, and the job ends when all have{}", have, missing),
       others});
}

void explain_standstill(const Case& c, std::vector<Reason>& reasons) {
  const auto late = late_ranks(c);
  explain_holds(c, late, reasons);
  for (const auto kind :
       {Late::Kind::kStopped, Late::Kind::kFrozen, Late::Kind::kEnded, Late::Kind::kBlocked,
        Late::Kind::kLinkDown, Late::Kind::kElsewhere, Late::Kind::kUnknown})
    explain_late(c, late, kind, reasons);
  if (late.empty() && reasons.empty())
    reasons.push_back(
        {"idle",
         fmt::format("the switch holds no incomplete fragment of the job{}: its ranks compute, or "
                     "wait for something else{}{}",
                     since(c, ", and nothing was completed for {}"),
                     number(c.now(), "bypassed") != 0
                         ? "; what the fallback has yet to answer is not seen here"
                         : "",
                     silence_text(c)),
         {}});
}

bool has_full_window(const Case& c) {
  const uint64_t window = number(c.now(), "window");
  return window != 0 && c.job.size() >= kLooks && std::ranges::all_of(c.job, [&](const Json* look) {
           return static_cast<double>(number(*look, "slots_held")) >=
                  kFull * static_cast<double>(window);
         });
}

void explain_slowness(const Case& c, std::vector<Reason>& reasons) {
  const auto late = always_late(c);
  if (c.job.size() >= kLooks && !late.empty() && late.size() < number(c.now(), "world_size")) {
    const bool may_help = !c.is_static() && number(c.now(), "in_switch") == 0;
    reasons.push_back(
        {"straggler",
         fmt::format("the job advances, but each of {} looks found it waiting for {}, slower than "
                     "the others: look at its host, its CPUs and its link{}",
                     c.job.size(), who(c, late),
                     may_help ? "; with straggler.help the others run ahead meanwhile" : ""),
         late});
    return;
  }
  if (has_full_window(c))
    reasons.push_back(
        {"window_full",
         fmt::format("its window of {} fragments was full in every look: the ranks may not send "
                     "more before something is complete; raise {}",
                     with_separators(number(c.now(), "window")),
                     c.is_static() ? "static.slots_per_job, or the job's --slots-floor"
                                   : "jobs.window_bytes"),
         {}});
}

// ---- the offload ratio

struct Offload {
  uint64_t absorbed = 0;
  uint64_t bypassed = 0;
  uint64_t preempted = 0;
  bool recent = false;
  double ratio() const {
    return static_cast<double>(absorbed) / static_cast<double>(absorbed + bypassed);
  }
};

std::optional<Offload> offload_of(const Case& c) {
  Offload seen{c.grown("absorbed"), c.grown("bypassed"), c.grown("preempted"), true};
  if (seen.absorbed + seen.bypassed < kManyContributions)
    seen = {number(c.now(), "absorbed"), number(c.now(), "bypassed"), number(c.now(), "preempted"),
            false};
  if (seen.absorbed + seen.bypassed == 0) return std::nullopt;
  return seen;
}

/// The quota that gives a job its ceiling; 0: none does.
uint64_t quota_of(const Case& c) {
  const std::string owner =
      child(c.now(), "tenant").is_string() ? text(c.now(), "tenant") : text(c.now(), "owner");
  for (const Json& tenant : child(c.status(), "tenants"))
    if (text(tenant, "name") == owner) return number(child(tenant, "quota"), "slots_ceiling");
  return 0;
}

/// Other jobs that hold slots, those with most first.
std::string others_text(const Case& c) {
  std::vector<std::pair<uint64_t, std::string>> others;
  for (const Json& job : child(c.status(), "jobs"))
    if (number(job, "id") != number(c.now(), "id") && number(job, "slots_held") != 0)
      others.emplace_back(number(job, "slots_held"), job_label(job));
  std::ranges::sort(others, std::greater<>());
  if (others.size() > 3) others.resize(3);
  std::string text;
  for (const auto& [slots, name] : others)
    text += fmt::format(", {} by {}", with_separators(slots), name);
  return text;
}

void explain_ceiling(const Case& c, std::vector<Reason>& reasons) {
  const uint64_t ceiling = number(c.now(), "slots_ceiling");
  const std::string had =
      fmt::format("the job has held {} slots at once, and may hold {}; its window is {} fragments",
                  with_separators(number(c.now(), "slots_held_peak")), with_separators(ceiling),
                  with_separators(number(c.now(), "window")));
  if (const uint64_t quota = quota_of(c); quota != 0)
    reasons.push_back(
        {"quota",
         fmt::format("{}: that is its share of its tenant's quota (tenants.slots_ceiling: {})", had,
                     with_separators(quota)),
         {}});
  else
    reasons.push_back({"slots_ceiling",
                       had + ": raise jobs.slots_ceiling, or --slots-ceiling of `inactl create`",
                       {}});
}

void explain_offload(const Case& c, const Offload& offload, std::vector<Reason>& reasons) {
  if (offload.ratio() >= kGoodOffload) return;
  const size_t before = reasons.size();
  const uint64_t ceiling = number(c.now(), "slots_ceiling");
  const uint64_t slots = number(c.aggregator(), "slots");
  const uint64_t used = number(c.aggregator(), "slots_used");
  const auto is_full = [](uint64_t part, uint64_t whole) {
    return whole != 0 && static_cast<double>(part) >= kFull * static_cast<double>(whole);
  };
  if (ceiling < slots && is_full(number(c.now(), "slots_held_peak"), ceiling))
    explain_ceiling(c, reasons);
  if (static_cast<double>(offload.preempted) >
      kManyPreempted * static_cast<double>(offload.absorbed + offload.bypassed))
    reasons.push_back(
        {"preempted",
         fmt::format("more urgent fragments took {} of its slots: jobs that communicate more, or "
                     "have less left, come first (its priority is at most {})",
                     with_separators(offload.preempted), number(c.now(), "priority_max")),
         {}});
  if (is_full(used, slots))
    reasons.push_back(
        {"array_full",
         fmt::format("{} of {} slots are in use, {} by this job{}: raise aggregator.slots, lower "
                     "jobs.window_bytes, or limit jobs (tenants)",
                     with_separators(used), with_separators(slots),
                     with_separators(number(c.now(), "slots_held")), others_text(c)),
         {}});
  if (reasons.size() == before)
    reasons.push_back(
        {"collisions",
         fmt::format("slots are free now, so its fragments meet others in the same places: its "
                     "window is {} fragments, the array has {} slots; raise aggregator.slots or "
                     "aggregator.ways, or lower jobs.window_bytes",
                     with_separators(number(c.now(), "window")), with_separators(slots)),
         {}});
}

// ---- the switch

/// Drops between the looks. Ranks that wait send again, which is no reason for waiting.
void explain_drops(const Case& c, const std::string& where, const Json& before, const Json& now,
                   std::vector<Reason>& reasons) {
  if (!now.is_object()) return;
  for (const auto& [reason, count] : now.items()) {
    if (c.completed() == 0 && (reason == "duplicate" || reason == "too_old")) continue;
    const uint64_t old = number(before, reason.c_str());
    const uint64_t more = count.is_number_unsigned() ? count.get<uint64_t>() : 0;
    if (more > old)
      reasons.push_back({"drops",
                         fmt::format("{} packets, of any job, were dropped {} meanwhile: {}: {}; "
                                     "docs/operations.md has the recipe",
                                     with_separators(more - old), where, printable(reason),
                                     describe_drop(reason)),
                         {}});
  }
}

void explain_lanes(const Case& c, std::vector<Reason>& reasons) {
  const Json& lanes = child(c.status(), "lcores");
  const Json& before = child(c.looks.front(), "lcores");
  for (size_t i = 0;
       lanes.is_array() && before.is_array() && i < std::min(lanes.size(), before.size()); ++i) {
    const double busy = real(lanes[i], "busy_s") - real(before[i], "busy_s");
    if (c.seconds > 0 && busy / c.seconds >= kBusy)
      reasons.push_back(
          {"lane_busy",
           fmt::format("packet loop {} was busy {:.0f} % of the time: raise switch.lcores, or "
                       "aggregator.slot_bytes",
                       i, std::min(100.0, 100 * busy / c.seconds)),
           {}});
  }
}

void explain_switch(const Case& c, std::vector<Reason>& reasons) {
  explain_lanes(c, reasons);
  const Json& ports = child(c.status(), "ports");
  const Json& before = child(c.looks.front(), "ports");
  for (size_t i = 0;
       ports.is_array() && before.is_array() && i < std::min(ports.size(), before.size()); ++i)
    explain_drops(c, "at port " + text(ports[i], "name"), child(before[i], "drops"),
                  child(ports[i], "drops"), reasons);
  explain_drops(c, "by the aggregator", child(child(c.looks.front(), "aggregator"), "drops"),
                child(c.aggregator(), "drops"), reasons);
}

void explain_running(const Case& c, JobVerdict& verdict) {
  explain_fallback(c, verdict.reasons);
  explain_tree(c, verdict.reasons);
  explain_unheard(c, verdict.reasons);
  explain_collective(c, "splitting", "split_missing", "ina_split", verdict.reasons);
  explain_creates(c, verdict.reasons);
  explain_collective(c, "sharing", "result_buffer_missing", "ina_alloc_result", verdict.reasons);
  if (verdict.advances) {
    explain_slowness(c, verdict.reasons);
  } else {
    explain_standstill(c, verdict.reasons);
    explain_wait_above(c, verdict.reasons);
  }
  if (const auto offload = offload_of(c)) {
    verdict.offload = offload->ratio();
    verdict.recent = offload->recent;
    explain_offload(c, *offload, verdict.reasons);
  }
  explain_switch(c, verdict.reasons);
}

JobVerdict explain(const Case& c) {
  JobVerdict verdict;
  verdict.job = job_label(c.now());
  verdict.id = number(c.now(), "id");
  verdict.state = text(c.now(), "state");
  verdict.fragments = c.completed();
  verdict.advances = verdict.fragments != 0;
  if (verdict.state == "joining") {
    explain_joining(c, verdict.reasons);
    explain_no_way_up(c, verdict.reasons);
    explain_fallback(c, verdict.reasons);
  } else if (verdict.state == "rejoining") {
    explain_rejoining(c, verdict.reasons);
    explain_tree(c, verdict.reasons);
  } else if (verdict.state == "leaving") {
    explain_leaving(c, verdict.reasons);
  } else {
    explain_running(c, verdict);
  }
  for (Reason& reason : verdict.reasons)
    for (const uint64_t rank : reason.ranks) reason.peers.push_back(peer_of(c, rank));
  return verdict;
}

/// Ports whose interface is gone, that are part of a loop, or that lose frames.
std::vector<Reason> reasons_of_switch(std::span<const Json> looks) {
  std::vector<Reason> reasons;
  for (const Json& port : child(looks.back(), "ports")) {
    if (child(port, "gone").is_string())
      reasons.push_back({"interface_gone", text(port, "gone"), {}});
    for (const Json& before : child(looks.front(), "ports")) {
      const uint64_t lost = number(port, "lost_before");
      const uint64_t old = number(before, "lost_before");
      if (child(before, "name") == child(port, "name") && lost > old)
        reasons.push_back(
            {"frames_lost",
             fmt::format("port {} has lost {} frames meanwhile, for which the kernel or the device "
                         "had no room: raise its framecnt or rx_descriptors, or switch.lcores",
                         text(port, "name"), with_separators(lost - old)),
             {}});
    }
    if (const Json& blocked = child(port, "blocked"); blocked.is_object())
      reasons.push_back(
          {"port_blocked",
           fmt::format("{}, for {:.0f} s so far", text(blocked, "text"), real(blocked, "for_s")),
           {}});
  }
  return reasons;
}

Json reasons_json(const std::vector<Reason>& reasons) {
  Json all = Json::array();
  for (const Reason& reason : reasons)
    all.push_back({{"cause", reason.cause},
                   {"ranks", reason.ranks},
                   {"peers", reason.peers},
                   {"text", reason.text}});
  return all;
}

// ---- which jobs

bool is_named(const Json& job, const std::string& name) {
  return name.empty() || text(job, "name") == printable(name) || job_label(job) == printable(name);
}

/// Jobs of that name, and their groups.
std::vector<const Json*> jobs_named(const Json& status, const std::string& name) {
  std::vector<const Json*> found;
  std::vector<uint64_t> ids;
  for (const Json& job : child(status, "jobs"))
    if (is_named(job, name)) ids.push_back(number(job, "id"));
  for (const Json& job : child(status, "jobs"))
    if (contains(ids, number(job, "id")) ||
        (child(job, "group_of").is_number() && contains(ids, number(job, "group_of"))))
      found.push_back(&job);
  return found;
}

/// Why there may be no job of that name.
std::string absence_text(const Json& status, const std::string& name) {
  std::string text = fmt::format("there is no job '{}'", name);
  std::vector<std::string> others;
  for (const Json& job : child(status, "jobs"))
    if (others.size() < 10) others.push_back(job_label(job));
  text += others.empty() ? ", and no other" : fmt::format("; there is {}", fmt::join(others, ", "));
  if (child(status, "draining") == true) text += "; the switch is drained and lets none in";
  for (const Json& tenant : child(status, "tenants")) {
    const Json& quota = child(tenant, "quota");
    const auto reached = [&](const char* used, const char* limit) {
      return number(quota, limit) != 0 && number(tenant, used) >= number(quota, limit);
    };
    if (reached("jobs", "jobs_max") || reached("workers", "workers_max") ||
        reached("slots_ceiling", "slots_ceiling") || reached("memory_bytes", "memory_bytes"))
      text += fmt::format("; the quota of {} is used up (`inactl tenants`)",
                          diagnosis::text(tenant, "name"));
  }
  return text + "; if it was refused, the switch's log says why (`refused`)";
}

}  // namespace

Result<Verdict> why(std::span<const Json> looks, const std::string& job) {
  if (looks.empty()) return fail(INA_ERR_INVALID, "no status to look at");
  Verdict verdict;
  verdict.seconds = std::max(0.0, real(looks.back(), "uptime_s") - real(looks.front(), "uptime_s"));
  const auto named = jobs_named(looks.back(), job);
  if (named.empty() && !job.empty()) return fail(INA_ERR_REFUSED, absence_text(looks.back(), job));
  for (const Json* now : named) {
    Case c{looks, {}, verdict.seconds};
    for (const Json& look : looks)
      for (const Json& then : child(look, "jobs"))
        if (number(then, "id") == number(*now, "id")) c.job.push_back(&then);
    verdict.jobs.push_back(explain(c));
  }
  verdict.of_switch = reasons_of_switch(looks);
  return verdict;
}

std::string why_text(const Json& status, uint64_t job) {
  for (const Json& one : child(status, "jobs")) {
    if (number(one, "id") != job) continue;
    const JobVerdict verdict = explain(Case{std::span(&status, 1), {&one}, 0});
    std::vector<std::string> texts;
    for (const Reason& reason : verdict.reasons) texts.push_back(reason.text);
    return fmt::format("{}", fmt::join(texts, "; "));
  }
  return "the switch has no such job";
}

std::string format_verdict(const Verdict& verdict) {
  std::string out;
  if (!verdict.of_switch.empty()) {
    out = "switch:\n";
    for (const Reason& reason : verdict.of_switch) out += "  - " + reason.text + "\n";
  }
  if (verdict.jobs.empty()) return out + "no job: no worker has joined\n";
  for (const JobVerdict& job : verdict.jobs) {
    out += fmt::format("{}job {} (id {}): {}", out.empty() ? "" : "\n", job.job, job.id, job.state);
    if (job.state == "running" && job.advances)
      out += fmt::format(", {} fragments in {:.1f} s", with_separators(job.fragments),
                         verdict.seconds);
    else if (job.state == "running")
      out += ", does not advance";
    if (job.offload)
      out += fmt::format(", {:.1f} % of its contributions {} added in slots", 100 * *job.offload,
                         job.recent ? "were" : "have so far been");
    out += "\n";
    if (job.reasons.empty()) out += "  nothing is wrong that the switch could see\n";
    for (const Reason& reason : job.reasons) out += "  - " + reason.text + "\n";
  }
  return out;
}

Json verdict_json(const Verdict& verdict) {
  Json jobs = Json::array();
  for (const JobVerdict& job : verdict.jobs) {
    jobs.push_back({{"job", job.job},
                    {"id", job.id},
                    {"state", job.state},
                    {"advances", job.advances},
                    {"fragments", job.fragments},
                    {"offload_ratio", job.offload ? Json(*job.offload) : Json()},
                    {"reasons", reasons_json(job.reasons)}});
  }
  return {
      {"seconds", verdict.seconds}, {"jobs", jobs}, {"switch", reasons_json(verdict.of_switch)}};
}

}  // namespace ina::diagnosis

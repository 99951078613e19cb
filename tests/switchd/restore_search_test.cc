// A switch starts with any state file: seeded random files with reserved, overdue and running jobs
// in every combination, with groups, of switches with other configurations, with twins and with
// damage. It serves reserved jobs and a fresh job, or says clearly why not, and takes back the
// workers of jobs that ran, and then the members of their groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/support/hand_driven.h"
#include "tests/support/process.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using scheduler::PolicyKind;
using test::HandDriven;
using test::is_group;
using test::SwitchOptions;
using test::TestSwitch;
using testing::HasSubstr;

constexpr Nanos kDeadlineNs = 5'000'000'000;
/// What a switch promises: from its start on, whatever its state file holds.
constexpr Nanos kServesWithinNs = 1'000'000'000;

/// Ends the process, with the seed, if the switch hangs: no thread of the test could.
class Watchdog {
 public:
  explicit Watchdog(std::string what) : what_(std::move(what)) {
    thread_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      if (done_.wait_for(lock, std::chrono::seconds(30), [this] { return stop_; })) return;
      std::fprintf(stderr, "%s: the switch hangs\n", what_.c_str());
      ::_exit(1);
    });
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    done_.notify_one();
    thread_.join();
  }

 private:
  std::string what_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool stop_ = false;
  std::thread thread_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t count) { return engine_() % count; }
  bool once_in(uint64_t count) { return below(count) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  std::mt19937_64 engine_;
};

struct Setup {
  PolicyKind policy;
  Home home;
  uint32_t lanes, slots, slot_bytes, slots_per_job, max_jobs;
  uint64_t window_bytes, memory_bytes;
  bool helps;
  std::vector<scheduler::TenantQuota> tenants;
  bool fixed() const { return !scheduler::traits(policy).hashed; }
};

Setup random_setup(Random& random) {
  Setup setup;
  setup.policy = random.one_of({PolicyKind::kStatic, PolicyKind::kEsa, PolicyKind::kFcfs});
  setup.home = random.one_of({Home::kWorkers, Home::kWorkers, Home::kSpill, Home::kDedicated});
  setup.lanes = random.one_of<uint32_t>({1, 1, 2, 3});
  setup.slots = random.one_of<uint32_t>({64, 256, 512});
  setup.slot_bytes = random.one_of<uint32_t>({1024, 1024, 1024, 512});
  setup.slots_per_job = random.one_of<uint32_t>({16, 64});
  setup.max_jobs = random.one_of<uint32_t>({1, 4, 16});
  setup.window_bytes = random.one_of<uint64_t>({4096, 65536});
  setup.memory_bytes = random.one_of<uint64_t>({1 << 20, 1 << 28, 1 << 28, 1 << 28});
  setup.helps = random.once_in(4);
  if (random.once_in(4)) {
    scheduler::TenantQuota quota;
    quota.name = "uid:0";
    quota.jobs_max = random.one_of<uint32_t>({0, 1, 3});
    quota.workers_max = random.one_of<uint32_t>({0, 1, 5});
    quota.slots_floor = random.one_of<uint32_t>({0, 32});
    quota.slots_ceiling = random.one_of<uint32_t>({0, 32, 256});
    quota.memory_bytes = random.one_of<uint64_t>({0, 1 << 18});
    setup.tenants.push_back(quota);
  }
  return setup;
}

SwitchOptions options_of(const Setup& setup, Nanos rejoin_timeout_ns) {
  SwitchOptions options;
  options.slots = setup.slots;
  options.slot_bytes = setup.slot_bytes;
  options.slots_per_job = setup.slots_per_job;
  options.lanes = setup.lanes;
  options.max_jobs = setup.max_jobs;
  options.rejoin_timeout_ns = rejoin_timeout_ns;
  options.conductor = [setup](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = setup.policy;
    config.rules.home = setup.home;
    config.jobs.window_bytes = setup.window_bytes;
    config.jobs.memory_bytes = setup.memory_bytes;
    config.tenants = setup.tenants;
    if (!setup.helps) return;
    config.straggler = {config::Help::kLeader, 2 * setup.window_bytes, setup.window_bytes,
                        1'000'000};
  };
  return options;
}

/// A job as a switch with `setup` would have written it down.
Json random_job(Random& random, const Setup& setup, uint32_t number) {
  const bool reserved = random.once_in(2);
  uint32_t per_lane = static_cast<uint32_t>(setup.window_bytes / setup.slot_bytes) / setup.lanes;
  if (setup.fixed()) per_lane = std::min(per_lane, setup.slots_per_job / 2 / setup.lanes);
  per_lane = std::max(per_lane, 1u);
  const uint32_t window = per_lane * setup.lanes;
  Json job = {{"name", "saved-" + std::to_string(number)},
              {"id", number + 1},
              {"key", random.below(UINT64_MAX)},
              {"uid", random.once_in(4) ? 12345 : 0},
              {"workers", random.one_of<uint32_t>({1, 1, 2, 3})},
              {"epoch", 4096 + random.below(4096)},
              {"lanes", setup.lanes},
              {"slot_bytes", setup.slot_bytes},
              {"window", window},
              {"first_slot", setup.fixed() ? number * 2 * per_lane : 0},
              {"slots_per_lane", setup.fixed() ? 2 * per_lane : 0},
              {"tenant", random.once_in(4) ? "blue" : ""},
              {"floor_per_lane", setup.fixed() ? 0 : random.below(8)},
              {"ceiling_per_lane", setup.fixed() ? 0 : setup.slots / setup.lanes},
              {"priority_max", 255},
              {"in_switch", setup.helps && !setup.fixed() ? window : 0},
              {"park_room", setup.helps && !setup.fixed() ? window : 0},
              {"ticket", ""},
              {"reserved_until", 0}};
  if (random.once_in(8)) {  // of a switch that knew less
    for (const char* later : {"in_switch", "park_room", "ticket", "reserved_until"})
      job.erase(later);
  } else if (reserved) {
    job["ticket"] = "ticket-" + std::to_string(number);
    job["reserved_until"] = std::max<int64_t>(
        1, ::time(nullptr) + random.one_of<int64_t>({3600, 3600, -1, -1'000'000}));
  } else if (random.once_in(3)) {
    job["ticket"] = "ticket-" + std::to_string(number);
  }
  return job;
}

/// Where the workers of the job were told the fallback is: mostly where it was. Or nothing, by a
/// switch that knew less.
void add_home(Random& random, const Setup& setup, Json& job) {
  if (random.once_in(3)) return;
  const Home other = random.one_of({Home::kWorkers, Home::kSpill, Home::kDedicated});
  job["home"] = std::string(name(random.once_in(8) ? other : setup.home));
}

/// A group of `root`, as the same switch would have written it down. One in two cannot be one: the
/// file does not have its job, or the job does not have its workers.
Json random_group(Random& random, const Setup& setup, const Json& root, uint32_t number) {
  const auto of_root = root["workers"].get<uint32_t>();
  std::vector<uint32_t> ranks(1 + random.below(of_root));
  std::iota(ranks.begin(), ranks.end(), 0u);
  if (random.once_in(2)) std::reverse(ranks.begin(), ranks.end());
  Json group = random_job(random, setup, number);
  add_home(random, setup, group);
  group["name"] = root["name"].get<std::string>() + "/" + std::to_string(number + 1);
  group["uid"] = root["uid"];
  group["tenant"] = root["tenant"];
  group["workers"] = ranks.size();
  group["ticket"] = "";
  group["reserved_until"] = 0;
  group["root"] = root["id"];
  switch (random.below(8)) {
    case 0:
      group["root"] = 1000;
      break;
    case 1:
      ranks.front() = of_root;
      break;
    case 2:
      std::fill(ranks.begin(), ranks.end(), 0u);
      break;
    case 3:  // of no job at all
      if (random.once_in(2)) ranks.push_back(0);
      if (random.once_in(2)) ranks.front() = UINT32_MAX;
      break;
    default:
      break;
  }
  group["root_ranks"] = ranks;
  return group;
}

/// Something that no switch writes, or one with another configuration.
void spoil(Random& random, Json& job) {
  auto field = job.begin();
  std::advance(field, static_cast<long>(random.below(job.size())));
  const std::string key = field.key();
  switch (random.below(6)) {
    case 0:
      job.erase(key);
      break;
    case 1:
      job[key] = random.one_of<uint64_t>({0, 1, 3, 255, 65536, UINT32_MAX, UINT64_MAX});
      break;
    case 2:
      job[key] = random.below(uint64_t{1} << random.below(40));
      break;
    case 3:
      job[key] = -1;
      break;
    case 4:
      job[key] = std::string(random.below(200), 'x') + "\n\x1b[2J\"";
      break;
    default:
      if (job[key].is_number()) job[key] = job[key].get<uint64_t>() + 1;
  }
}

/// `more`: for homes and groups. Without its own sequence they would change the jobs of each seed.
Json random_file(Random& random, Random& more, const Setup& setup) {
  Json file = {{"format", 1},
               {"boots", random.once_in(16) ? (1u << 20) - 1 : 1 + random.below(1000)},
               {"next_job_id", 1 + random.below(30)},
               {"jobs", Json::array()}};
  std::vector<Json> sound;  // jobs before anything happens to them
  const auto jobs = static_cast<uint32_t>(random.below(7));
  for (uint32_t number = 0; number < jobs; ++number) {
    Json job = random_job(random, setup, number);
    add_home(more, setup, job);
    sound.push_back(job);
    if (random.once_in(12)) spoil(random, job);
    if (number != 0 && random.once_in(12)) job["first_slot"] = 0;  // taken already
    if (number != 0 && random.once_in(24)) job["name"] = file["jobs"][0].value("name", "");
    file["jobs"].push_back(std::move(job));
  }
  const auto groups = jobs == 0 ? 0 : static_cast<uint32_t>(more.below(3));
  for (uint32_t number = jobs; number < jobs + groups; ++number) {
    Json group = random_group(more, setup, sound[more.below(jobs)], number);
    if (more.once_in(12)) spoil(more, group);
    file["jobs"].push_back(std::move(group));
  }
  return file;
}

/// One worker, all of `job`: joins, adds, leaves. Returns the text of a failure, or "".
std::string serve_one(const std::string& url, const std::string& job, const std::string& ticket) {
  if (ticket.empty())
    ::unsetenv("INA_TICKET");
  else
    ::setenv("INA_TICKET", ticket.c_str(), 1);
  ina_config config;
  ina_config_init(&config);
  config.url = url.c_str();
  config.job = job.c_str();
  config.rank = 0;
  config.world_size = 1;
  config.timeout_us = kDeadlineNs / 1000;
  ina_context* context = nullptr;
  if (ina_init(&config, &context) != INA_OK) return ina_last_error(nullptr);
  std::vector<int32_t> data(3000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int32_t>(i);
  std::string failed;
  if (ina_allreduce(context, data.data(), data.data(), data.size(), INA_INT32, INA_SUM, 0) !=
      INA_OK)
    failed = ina_last_error(context);
  for (size_t i = 0; i < data.size() && failed.empty(); ++i)
    if (data[i] != static_cast<int32_t>(i)) failed = "wrong element";
  ina_finalize(context, kDeadlineNs / 1000);
  return failed;
}

std::string owner_of(const Json& saved) {
  const std::string tenant = saved.value("tenant", "");
  return tenant.empty() ? "uid:" + std::to_string(saved["uid"].get<uint32_t>()) : tenant;
}

Json rejoin_of(const Json& saved, uint32_t rank) {
  Json message = test::rejoin_message(saved, rank);
  if (!is_group(saved)) message["owner"] = owner_of(saved);
  return message;
}

/// It has its place, and attaches.
void go_on(const HandDriven& worker, const Json& saved, const Json& joined) {
  ASSERT_TRUE(joined.is_object()) << saved;
  ASSERT_EQ(joined.value("type", ""), "joined") << joined << saved;
  EXPECT_EQ(joined["job_id"], saved["id"]);
  EXPECT_EQ(joined["job_key"], saved["key"]);
  EXPECT_EQ(joined["window"], saved["window"]);
  EXPECT_GT(joined["epoch"].get<uint32_t>(), saved["epoch"].get<uint32_t>());
  worker.attach(joined);
}

/// The workers of a job that came back to it, by rank; their connections are their groups', too.
using Workers = std::vector<HandDriven>;

/// All have attached, so that the job or group goes on. `ranks`: of the job, by rank of the group.
void expect_ready(const Workers& workers, const std::vector<uint32_t>& ranks, const Json& saved) {
  for (const uint32_t rank : ranks) {
    const Json ready = workers[rank].receive();
    ASSERT_TRUE(ready.is_object()) << saved;
    EXPECT_EQ(ready.value("type", ""), "ready") << ready << saved;
    EXPECT_EQ(ready.value("channel", 0u), is_group(saved) ? saved["id"].get<uint32_t>() : 0u);
  }
}

/// A job's workers come back.
Workers rejoin_job(const std::string& socket, const Json& saved) {
  Workers workers;
  std::vector<uint32_t> ranks(saved["workers"].get<uint32_t>());
  std::iota(ranks.begin(), ranks.end(), 0u);
  for (const uint32_t rank : ranks) {
    const Nanos deadline = now_ns() + kDeadlineNs;
    for (;;) {
      HandDriven worker(socket);
      const Json answer = worker.ask_if_open(rejoin_of(saved, rank));
      // Connections that have just ended may still count.
      if (answer.is_object() && answer.value("retry", false) && now_ns() < deadline) {
        ::usleep(1000);
        continue;
      }
      go_on(worker, saved, answer);
      workers.push_back(std::move(worker));
      break;
    }
    if (testing::Test::HasFatalFailure()) return workers;
  }
  expect_ready(workers, ranks, saved);
  return workers;
}

/// Members of a group come back, each to its own place alone. True: it goes on. False: it never
/// will, because one worker of the job has two places in it, and has one of them.
bool rejoin_group(const Workers& workers, const Json& saved) {
  const auto ranks = saved["root_ranks"].get<std::vector<uint32_t>>();
  std::set<uint32_t> back;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const HandDriven& worker = workers[ranks[rank]];
    const uint32_t others = (rank + 1) % ranks.size();
    if (ranks[others] != ranks[rank]) {
      EXPECT_EQ(worker.ask(rejoin_of(saved, others)).value("type", ""), "refused") << saved;
    }
    const Json answer = worker.ask(rejoin_of(saved, rank));
    if (back.insert(ranks[rank]).second)
      go_on(worker, saved, answer);
    else
      EXPECT_EQ(answer.value("type", ""), "refused") << answer << saved;
  }
  if (back.size() != ranks.size()) return false;
  expect_ready(workers, ranks, saved);
  return true;
}

struct Counts {
  int started = 0;    ///< switches
  int redeemed = 0;   ///< tickets
  int rejoined = 0;   ///< jobs that ran, with all their workers
  int regrouped = 0;  ///< groups of these, with all their members
  int dropped = 0;    ///< groups of these that a switch with this configuration cannot go on with
};

/// True if the switch waits for the workers of the saved job or group.
bool waits_for(const Json& status, const Json& saved) {
  return std::ranges::any_of(status["jobs"], [&](const Json& shown) {
    return shown["id"] == saved["id"] && shown["state"] == "rejoining";
  });
}

/// Workers of a job come back to the groups that the switch has taken up, and to no others.
void rejoin_groups(const Workers& workers, const Json& root, const Json& file, const Json& status,
                   Counts& counts) {
  for (const Json& saved : file["jobs"]) {
    if (!is_group(saved) || saved["root"] != root["id"]) continue;
    if (waits_for(status, saved)) {
      counts.regrouped += rejoin_group(workers, saved) ? 1 : 0;
    } else {
      const Json answer = workers[0].ask(rejoin_of(saved, 0));
      EXPECT_EQ(answer.value("status", 0), INA_ERR_SWITCH_LOST) << answer << saved;
      ++counts.dropped;
    }
  }
}

/// Workers of jobs that wait for them come back, then to their groups.
void rejoin_all(const TestSwitch& sw, const Json& file, const Json& status, Counts& counts) {
  for (const Json& saved : file["jobs"]) {
    if (is_group(saved) || !waits_for(status, saved)) continue;
    // Only root may name another owner.
    const std::string owner = owner_of(saved);
    if (::geteuid() != 0 && owner != "uid:" + std::to_string(::geteuid())) continue;
    const Workers workers = rejoin_job(sw.socket_path(), saved);
    if (testing::Test::HasFailure()) return;
    ++counts.rejoined;
    rejoin_groups(workers, saved, file, status, counts);
  }
}

/// A file that StateFile refuses may be refused, but as damaged and by name. True: it was refused.
bool refused(const std::string& path) {
  const auto state = switchd::StateFile::open(path);
  if (state) return false;
  EXPECT_THAT(state.error().text, HasSubstr(path));
  EXPECT_THAT(state.error().text, HasSubstr("is damaged"));
  return true;
}

/// Returns the time from the start of the switch to its first answer, and for a fresh job.
Nanos try_seed(uint64_t seed, Counts& counts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Watchdog watchdog("seed " + std::to_string(seed));
  Random random(seed);
  Random more(~seed);
  const Setup now = random_setup(random);
  const Setup before = random.once_in(3) ? random_setup(random) : now;
  const test::TempDir folder;
  const std::string path = folder / "switch.sock.state";
  const Json file = random_file(random, more, before);
  std::string text = file.dump();
  if (random.once_in(20)) text.resize(random.below(text.size()) + 1);
  std::ofstream(path) << text;
  if (refused(path)) return 0;
  const bool soon = random.once_in(4);
  const Nanos begin = now_ns();
  TestSwitch sw(options_of(now, soon ? 1'000'000 : 60'000'000'000), folder / "");
  ++counts.started;
  // All that it took up it shows.
  const Json status = sw.status();
  Nanos took = now_ns() - begin;
  for (const Json& job : status["jobs"])
    EXPECT_THAT(job["state"], testing::AnyOf("joining", "rejoining")) << job;
  std::optional<test::Process> fallback_server;
  if (now.home == Home::kDedicated)
    fallback_server.emplace(std::vector<std::string>{
        "/bin/sh", "-c", "exec " PSD " --socket " + sw.socket_path() + " >/dev/null 2>&1"});
  for (const Json& job : file["jobs"]) {
    const std::string name = job.value("name", "");
    const bool waits = std::ranges::any_of(status["jobs"], [&](const Json& shown) {
      return shown["name"] == name && shown.value("reserved_s", 0) > 0;
    });
    if (!waits || job["workers"] != 1 || is_group(job)) continue;
    EXPECT_EQ(serve_one(sw.url(), name, job["ticket"]), "") << job;
    ++counts.redeemed;
  }
  if (!soon) rejoin_all(sw, file, status, counts);
  const Nanos asked = now_ns();
  const std::string problem = serve_one(sw.url(), "fresh", "");
  took += now_ns() - asked;
  if (!problem.empty()) {
    EXPECT_THAT(problem, HasSubstr("job 'fresh' does not fit")) << status;
  }
  if (!soon) return took;
  // Those that were overdue are gone, and with them what they had.
  const Nanos deadline = now_ns() + kDeadlineNs;
  const auto rejoining = [&] {
    return std::ranges::any_of(sw.status()["jobs"],
                               [](const Json& job) { return job["state"] == "rejoining"; });
  };
  while (rejoining() && now_ns() < deadline) ::usleep(1000);
  EXPECT_FALSE(rejoining());
  return took;
}

TEST(RestoreSearch, ASwitchStartsWhateverItsStateFileHolds) {
#ifdef INA_SLOW_BUILD
  constexpr int kSeeds = 60, kMoreThan = 1;
#else
  constexpr int kSeeds = 300, kMoreThan = 10;
#endif
  Counts counts;
  for (uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) {
    Nanos took = try_seed(seed, counts);
    // A busy machine may be late, but not each time for the same file.
    for (int again = 0; again < 2 && took >= kServesWithinNs; ++again)
      took = try_seed(seed, counts);
    EXPECT_LT(took, kServesWithinNs) << "seed " << seed;
  }
  EXPECT_GT(counts.started, kSeeds / 3);
  EXPECT_GT(counts.redeemed, kMoreThan);
  if (::geteuid() == 0) {  // others may not name the owners of these jobs
    EXPECT_GT(counts.rejoined, kMoreThan);
    EXPECT_GT(counts.regrouped, kMoreThan);
    EXPECT_GT(counts.dropped, 0);
  }
  ::unsetenv("INA_TICKET");
}

}  // namespace
}  // namespace ina

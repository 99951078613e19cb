// A switch as its administrator meets it: `inactl` against a real daemon, over the unix socket and
// over TLS, and workers that join with the ticket it prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "control/client.h"
#include "tests/support/certificates.h"
#include "tests/support/free_port.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using control::Json;
using test::Process;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  std::string output;  ///< stdout and stderr
  int status = 0;
};

class InactlAdminTest : public testing::Test {
 protected:
  std::string socket() const { return dir_ / "switch.sock"; }
  std::string tokens() const { return dir_ / "tokens"; }
  void write(const std::string& path, const std::string& text) const {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0600);
  }
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(dir_ / "log").rdbuf();
    return text.str();
  }
  void start(const std::string& admin = "") {
    write(tokens(), "vision a-token-of-their-own\n");
    write(dir_ / "switchd.yaml",
          "aggregator: {slots: 512, slot_bytes: 1024}\n"
          "static: {slots_per_job: 64}\n"
          "eal: {file_prefix: ina-admin-" +
              std::to_string(::getpid()) + ", huge: no}\nlog: {file: " + (dir_ / "log") +
              "}\ncontrol: {socket: " + socket() + ", listen: \"127.0.0.1:" +
              std::to_string(test::free_port()) + "\", token_file: " + tokens() +
              "}\ntenants: [{name: vision, jobs_max: 2}]\n" + admin);
    daemon_ = std::make_unique<Process>(
        std::vector<std::string>{INA_SWITCHD, "--config", dir_ / "switchd.yaml"});
    ASSERT_TRUE(control::query_status(socket(), 20'000'000'000)) << log();
  }
  Outcome inactl(const std::string& arguments) const {
    Process process(
        {"/bin/sh", "-c", "INA_SOCKET=" + socket() + " " + INACTL + " " + arguments + " 2>&1"});
    Outcome outcome;
    outcome.output = process.output();
    outcome.status = process.wait();
    return outcome;
  }
  /// The output of a command that must succeed.
  std::string ran(const std::string& arguments) const {
    const Outcome outcome = inactl(arguments);
    EXPECT_EQ(outcome.status, 0) << arguments << ": " << outcome.output;
    return outcome.output;
  }
  /// The error of a failing one. 1: the switch refused it (docs/administration.md has the others).
  std::string complaint(const std::string& arguments, int status = 1) const {
    const Outcome outcome = inactl(arguments);
    EXPECT_EQ(outcome.status, status) << arguments << ": " << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("inactl: "));
    return outcome.output;
  }
  Json status() const {
    const auto status = control::query_status(socket(), 5'000'000'000);
    return status ? *status : Json();
  }

  test::TempDir dir_;
  std::unique_ptr<Process> daemon_;
};

TEST_F(InactlAdminTest, WhatCreatePrintsIsAllThatWorkersNeed) {
  start();
  const std::string script = ran("create \"it's\" --workers 2 --tenant vision --ttl 5m");
  EXPECT_THAT(script, HasSubstr("of tenant vision: 2 workers, 64 slots, a window of 32 fragments"));
  EXPECT_THAT(script, HasSubstr("waits 5 min for its workers"));
  EXPECT_THAT(ran("status"), HasSubstr("waiting for ranks 0, 1 to join"));
  std::vector<Process> workers;
  for (const char* rank : {"0", "1"})
    workers.emplace_back(std::vector<std::string>{"/bin/sh", "-c",
                                                  script + "exec " + LOAD_WORKER +
                                                      " shm:" + socket() + " \"$INA_JOB\" " + rank +
                                                      " $INA_WORLD_SIZE 20000 10 0"});
  for (auto& worker : workers) EXPECT_EQ(worker.output(), "INA_OK \n") << log();
  EXPECT_TRUE(status()["jobs"].empty());
  const auto ticket = script.substr(script.find("INA_TICKET=") + 11, 32);
  EXPECT_THAT(log(), testing::Not(HasSubstr(ticket)));
  Process late({"/bin/sh", "-c",
                script + "exec " + LOAD_WORKER + " shm:" + socket() + " \"$INA_JOB\" 0 2 1 1 0"});
  EXPECT_THAT(late.output(), StartsWith("INA_ERR_REFUSED the ticket is unknown"));
}

TEST_F(InactlAdminTest, CreateSaysWhyNotAndByHowMuch) {
  start();
  EXPECT_THAT(complaint("create a --workers 2 --slots-floor 4096 --window 8MiB"),
              HasSubstr("job 'a' does not fit: the job needs 4096 slots in one piece, 512 of 512 "
                        "are free and the largest piece is 512: short by 3584"));
  EXPECT_THAT(complaint("create a --workers 4097"), HasSubstr("4097"));
  ran("create a --workers 2 --tenant vision");
  ran("create b --workers 2 --tenant vision");
  EXPECT_THAT(complaint("create c --workers 2 --tenant vision"),
              HasSubstr("tenant 'vision' has 2 of 2 jobs: short by 1"));
  EXPECT_THAT(complaint("create a --workers 2 --tenant vision"), HasSubstr("already"));
  EXPECT_THAT(ran("tenants"), HasSubstr("vision  2 of 2        4         128            128"));
  EXPECT_EQ(Json::parse(ran("tenants -j"))["tenants"][0]["workers"], 4);
  const Json made = Json::parse(ran("create c --workers 3 --priority-max 9 --ttl 2h -j"));
  EXPECT_EQ(made["ticket"].get<std::string>().size(), 32u);
  EXPECT_EQ(made["priority_max"], 9);
  EXPECT_EQ(made["expires_in"], "7200s");
  EXPECT_EQ(status()["jobs"][2]["owner"], "uid:" + std::to_string(::getuid()));
}

TEST_F(InactlAdminTest, DrainWaitsForTheLastJobAndAbortEndsIt) {
  start();
  ran("create a --workers 1");
  ran("create b --workers 1");
  const std::string owner = "uid:" + std::to_string(::getuid());
  EXPECT_EQ(ran("drain"), "2 jobs are left: " + owner + "/a, " + owner + "/b\n");
  EXPECT_EQ(Json::parse(ran("drain -j"))["jobs"],
            (Json{{{"name", "a"}, {"owner", owner}}, {{"name", "b"}, {"owner", owner}}}));
  EXPECT_THAT(ran("status"), HasSubstr("job " + owner + "/a: "));
  EXPECT_THAT(complaint("drain --wait 1s", 4), HasSubstr("not drained after 1 s"));
  EXPECT_THAT(complaint("create c --workers 1"), HasSubstr("the switch is drained"));
  Process drain({"/bin/sh", "-c", "INA_SOCKET=" + socket() + " " + INACTL + " drain --wait 30s"});
  EXPECT_EQ(ran("abort a --reason maintenance"), "job 'a' is ended\n");
  EXPECT_THAT(complaint("abort a"), HasSubstr("there is no job 'a'"));
  EXPECT_EQ(Json::parse(ran("abort b --json")),
            (Json{{"schema", 1}, {"job", "b"}, {"aborted", true}}));
  EXPECT_THAT(drain.output(), testing::EndsWith("drained: no job is left, and none is let in\n"));
  EXPECT_EQ(drain.wait(), 0);
  EXPECT_EQ(ran("undrain"), "new jobs are let in again\n");
  EXPECT_EQ(Json::parse(ran("-j undrain")), (Json{{"schema", 1}, {"draining", false}}));
  ran("create c --workers 1");
  EXPECT_THAT(complaint("kick c 0"), HasSubstr("job 'c' has no rank 0 at present"));
}

TEST_F(InactlAdminTest, TokensAreReadAgainByCommandAndBySignal) {
  start();
  write(tokens(), "vision a-token-of-their-own\nspeech another-token-of-16\n");
  EXPECT_EQ(ran("reload"), "the configuration is as it was\n2 tokens\n");
  write(tokens(), "vision short\n");
  EXPECT_THAT(complaint("reload"), HasSubstr("line 1: the token has not 16..256 characters"));
  write(tokens(), "a a-token-of-their-own\nb another-token-of-16\nc a-third-token-of-16\n");
  daemon_->kill(SIGHUP);
  for (int i = 0; i < 1000 && log().find("tokens=\"3\" by=\"SIGHUP\"") == std::string::npos; ++i)
    ::usleep(5000);
  EXPECT_THAT(log(), HasSubstr("tokens=\"3\" by=\"SIGHUP\""));
}

TEST_F(InactlAdminTest, OverTcpByMutualTls) {
  test::CertificateAuthority authority(dir_, "ca");
  test::CertificateAuthority stranger(dir_, "stranger");
  const auto own = authority.issue("switch", "IP:127.0.0.1");
  const auto operator_files = authority.issue("operator");
  const std::string address = "127.0.0.1:" + std::to_string(test::free_port());
  start("admin: {listen: \"" + address + "\", certificate: " + own.certificate +
        ", key: " + own.key + ", client_ca: " + authority.file() + "}\n");
  const auto by = [&](const std::string& ca, const test::CertificateFiles& files) {
    return " --admin " + address + " --ca " + ca + " --cert " + files.certificate + " --key " +
           files.key;
  };
  EXPECT_THAT(ran("create far --workers 2 --tenant vision" + by(authority.file(), operator_files)),
              HasSubstr("INA_TICKET="));
  EXPECT_THAT(log(), HasSubstr("by=\"certificate 'operator', 127.0.0.1:"));
  EXPECT_THAT(complaint("create near --workers 2" + by(authority.file(), operator_files), 2),
              HasSubstr("Give --tenant"));
  EXPECT_THAT(complaint("tenants --admin " + address, 2), HasSubstr("give --ca, --cert and --key"));
  EXPECT_THAT(complaint("tenants" + by(stranger.file(), operator_files), 3),
              HasSubstr("is INA_TLS_CA the authority that signed it?"));
  EXPECT_THAT(complaint("tenants" + by(authority.file(), stranger.issue("operator")), 3),
              HasSubstr("for administrators, its admin.client_ca"));
  EXPECT_THAT(complaint("tenants" + by("/no/such/file", operator_files), 2),
              HasSubstr("cannot open /no/such/file (INA_TLS_CA)"));
}

TEST_F(InactlAdminTest, WithoutASwitchItSaysWhereItLooked) {
  EXPECT_THAT(complaint("undrain", 3),
              HasSubstr("no switch at socket " + socket() + ".admin: there is no such file"));
  EXPECT_THAT(complaint("undrain", 3), HasSubstr("is this its admin.socket?"));
  EXPECT_THAT(complaint("undrain --admin /no/where", 3), HasSubstr("/no/where"));
  EXPECT_THAT(complaint("undrain --socket tls:switch1:7583", 2), HasSubstr("give --admin"));
  EXPECT_THAT(complaint("create --workers 2", 2), HasSubstr("name is required"));
  EXPECT_THAT(complaint("create a --workers 2 --ttl soon", 2),
              HasSubstr("'soon' is not a time such as 90s, 10m, 2h or 1d"));
}

TEST_F(InactlAdminTest, EveryCommandTakesTheSocketOnEitherSideOfItsName) {
  start();
  const std::string option = " --socket " + socket();
  const auto run = [](const std::string& arguments) {
    Process process({"/bin/sh", "-c",
                     std::string("INA_SOCKET=/no/where.sock INA_ADMIN=/no/where.admin ") + INACTL +
                         " " + arguments + " 2>&1"});
    Outcome outcome;
    outcome.output = process.output();
    outcome.status = process.wait();
    return outcome;
  };
  for (const char* command : {"create a --workers 1", "kick a 0", "abort a", "drain", "undrain",
                              "tenants", "reload", "status"}) {
    const int status = std::string(command) == "kick a 0" ? 1 : 0;  // nobody has joined
    const Outcome behind = run(command + option);
    EXPECT_EQ(behind.status, status) << command << ": " << behind.output;
    if (std::string(command) == "create a --workers 1") ran("abort a");
    if (std::string(command) == "abort a") ran("create a --workers 1");
    const Outcome before = run(option + " " + command);
    EXPECT_EQ(before.status, status) << command << ": " << before.output;
    EXPECT_NE(before.output, "") << command;
  }
}

TEST_F(InactlAdminTest, ForProgramsEveryCommandPrintsOneObjectAlsoWhenItFails) {
  start();
  for (const auto& [arguments, status] :
       std::map<std::string, int>{{"create a --workers 65", 1},
                                  {"kick a 0", 1},
                                  {"abort a", 1},
                                  {"abort", 2},
                                  {"frobnicate", 2},
                                  {"create a --workers many", 2},
                                  {"undrain --admin /no/where", 3},
                                  {"status --socket /no/where", 3}}) {
    Process process({"/bin/sh", "-c",
                     "INA_SOCKET=" + socket() + " " + INACTL + " " + arguments + " --json 2>&1"});
    const std::string output = process.output();
    EXPECT_EQ(process.wait(), status) << arguments << ": " << output;
    const Json object = Json::parse(output, nullptr, false);
    ASSERT_TRUE(object.is_object()) << arguments << ": " << output;
    EXPECT_EQ(object["status"], status) << arguments;
    EXPECT_EQ(object["schema"], 1) << arguments;
    EXPECT_THAT(object["text"].get<std::string>(), testing::Not(HasSubstr("inactl"))) << arguments;
    EXPECT_FALSE(object["text"].get<std::string>().empty()) << arguments;
  }
}

/// Commands as `inactl --help` lists them; "job show" where one has others below it.
std::vector<std::string> commands_of_help(const std::string& before = "") {
  Process help({"/bin/sh", "-c", std::string(INACTL) + " " + before + " --help"});
  std::stringstream text(help.output());
  std::vector<std::string> found;
  bool listed = false;
  for (std::string line; std::getline(text, line);) {
    if (line == "Subcommands:") {
      listed = true;
    } else if (listed && line.starts_with("  ") && line[2] != ' ') {
      const std::string name = before + line.substr(2, line.find(' ', 2) - 2);
      const auto below = commands_of_help(name + " ");
      if (below.empty())
        found.push_back(name);
      else
        found.insert(found.end(), below.begin(), below.end());
    }
  }
  return found;
}

/// Two ranks that sum all the time.
class RunningJobTest : public InactlAdminTest {
 protected:
  void run_job(const std::string& admin) {
    start(admin);
    for (const char* rank : {"0", "1"})
      workers_.push_back(std::make_unique<Process>(std::vector<std::string>{
          LOAD_WORKER, "shm:" + socket(), "train", rank, "2", "20000", "-1", "0"}));
    while (status()["jobs"].empty() || status()["jobs"][0]["results"] == 0) ::usleep(10'000);
  }
  void write_other_slots() const {
    std::stringstream text;
    text << std::ifstream(dir_ / "switchd.yaml").rdbuf();
    std::string other = text.str();
    other.replace(other.find("slot_bytes: 1024"), 16, "slot_bytes: 2048");
    write(dir_ / "switchd.yaml", other);
  }
  ~RunningJobTest() override {
    for (const auto& worker : workers_) worker->kill(SIGKILL);
  }

  std::vector<std::unique_ptr<Process>> workers_;
};

/// Text of the manual behind a heading, to the next heading of the same level or a higher one.
std::string section(const std::string& manual, const std::string& heading) {
  const size_t begin = manual.find("\n" + heading + "\n");
  if (begin == std::string::npos) return "";
  const size_t level = heading.find(' ');
  for (size_t at = manual.find("\n#", begin + 1); at != std::string::npos;
       at = manual.find("\n#", at + 1))
    if (manual.find(' ', at) - at - 1 <= level) return manual.substr(begin, at - begin);
  return manual.substr(begin);
}

/// Words in backquotes.
std::set<std::string> quoted(const std::string& text) {
  std::set<std::string> found;
  for (size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at + 1)) {
    const size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    found.insert(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return found;
}

/// Adds the keys of an object, and of those in it. Keys of a few are names, not members.
void add_keys(const Json& value, std::set<std::string>& keys) {
  if (value.is_array())
    for (const Json& item : value) add_keys(item, keys);
  if (!value.is_object()) return;
  for (const auto& [key, item] : value.items()) {
    keys.insert(key);
    if (key != "drops" && key != "overrides" && key != "states") add_keys(item, keys);
  }
}

struct Documented {
  std::string command;
  std::string arguments;
  int status = 0;
  std::set<std::string> nested = {};  ///< keys that it must print: its lists are not empty
  std::string heading = {};           ///< of the section that has its keys, besides its row
  bool other_slots = false;           ///< before it the configuration's file gets others
};

std::string text_of_file(const char* path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

const std::string kMembersOfStatus = "### Members of status";

/// The words in backquotes of the command's row, and of its section, with the counters.
std::set<std::string> documented_members(const std::string& manual, const Documented& one) {
  const std::string json = section(manual, "## JSON");
  const std::string name =
      one.status == 0 ? "\n| `" + one.command + "` |" : "\n| any, that fails |";
  const size_t row = json.find(name);
  if (row == std::string::npos) return {};
  const size_t members = row + name.size();
  std::set<std::string> has = quoted(json.substr(members, json.find('\n', members) - members));
  if (!one.heading.empty()) has.merge(quoted(section(manual, one.heading)));
  if (one.heading == kMembersOfStatus) has.merge(quoted(text_of_file(COUNTERS_MD)));
  has.insert("schema");
  return has;
}

void expect_documented(const Json& object, const std::string& manual, const Documented& one) {
  const std::set<std::string> has = documented_members(manual, one);
  EXPECT_FALSE(has.empty()) << one.command << " has no row";
  std::set<std::string> keys;
  add_keys(object, keys);
  for (const std::string& key : keys)
    EXPECT_TRUE(has.contains(key))
        << one.command << " prints " << key << ", which the manual lacks";
  for (const std::string& key : one.nested)
    EXPECT_TRUE(keys.contains(key)) << one.command << " has no " << key << ": " << object;
}

TEST_F(RunningJobTest, EveryMemberOfEveryCommandsObjectIsInTheManual) {
  run_job("");
  ran("create a --workers 2");
  const std::string manual = text_of_file(ADMINISTRATION_MD);
  const std::string of_status = kMembersOfStatus, of_reload = "## Another configuration";
  // In an order in which all can be done.
  const std::vector<Documented> all = {
      {"status", "", 0, {"world_size", "busy_ratio", "rx_bytes", "quota"}, of_status},
      {"top", "--once", 0, {"busy_ratio", "drops_per_s", "offload_ratio"}, "### Members of top"},
      {"why", "", 0, {"cause", "peers"}, "## Why a job waits"},
      {"job show", "train", 0, {"world_size"}, of_status},
      {"port show", "shm0", 0, {"rx_bytes"}, of_status},
      {"create", "b --workers 1"},
      {"kick", "a 0", 1},
      {"abort", "b"},
      {"drain", "", 0, {"owner"}},
      {"undrain", ""},
      {"tenants", "", 0, {"quota"}, of_status},
      {"aggregator", "--heat", 0, {"oldest_us", "age_us"}},
      {"trace", "train --packets 200", 0, {"verdict", "to"}},
      {"policy show", "", 0, {"in_file", "summary"}},
      {"policy set", "fcfs --check", 0, {"in_place"}, of_reload},
      {"reload", "", 0, {}, of_reload},
      {"reload", "--check", 0, {"in_place", "reason"}, of_reload, true},
      {"kick", "train 0"}};
  for (const Documented& one : all) {
    if (one.other_slots) write_other_slots();
    const Outcome outcome = inactl(one.command + " " + one.arguments + " --json");
    EXPECT_EQ(outcome.status, one.status) << one.command << ": " << outcome.output;
    const Json object = Json::parse(outcome.output, nullptr, false);
    ASSERT_TRUE(object.is_object()) << one.command << ": " << outcome.output;
    EXPECT_EQ(object.value("schema", 0), 1) << one.command;
    expect_documented(object, manual, one);
  }
  std::set<std::string> seen;
  for (const Documented& one : all) seen.insert(one.command);
  const std::vector<std::string> commands = commands_of_help();
  EXPECT_EQ(seen, std::set<std::string>(commands.begin(), commands.end()));
}

TEST_F(RunningJobTest, TraceTellsWhatBecomesOfEachPacket) {
  run_job("switch: {lcores: 2}\n");
  const Json trace = Json::parse(ran("trace train --packets 400 -j"));
  EXPECT_EQ(trace["complete"], true);
  ASSERT_EQ(trace["packets"].size(), 400u);
  std::map<uint64_t, std::vector<Json>> by_seq;
  double before = 0;
  std::set<uint64_t> lanes;
  for (const Json& packet : trace["packets"]) {
    EXPECT_GE(packet["at_us"], before);
    before = packet["at_us"];
    EXPECT_EQ(packet["port"], "shm0");
    EXPECT_EQ(packet["lane"], packet["seq"].get<uint64_t>() % 2);
    lanes.insert(packet["lane"].get<uint64_t>());
    if (packet["type"] != "GRAD") continue;
    EXPECT_THAT(packet["operation_text"], HasSubstr("allreduce of 20000 int32 sum"));
    by_seq[packet["seq"]].push_back(packet);
  }
  EXPECT_EQ(lanes.size(), 2u);
  // Fragments of which both contributions are in the trace: the second one completes the first
  // one's slot, and the result goes to all.
  size_t complete = 0;
  for (const auto& [seq, packets] : by_seq) {
    if (packets.size() != 2 || packets[0]["verdict"] != "absorbed" ||
        packets[1]["verdict"] != "absorbed")
      continue;
    EXPECT_NE(packets[0]["rank"], packets[1]["rank"]) << seq;
    EXPECT_EQ(packets[0]["slot"], packets[1]["slot"]) << seq;
    EXPECT_EQ(packets[0]["held"], Json::array({packets[0]["rank"]})) << seq;
    EXPECT_EQ(packets[0]["slot_state"], "filling") << seq;
    EXPECT_EQ(packets[1]["slot_state"], "complete") << seq;
    EXPECT_EQ(packets[1]["sent"], (Json{{{"type", "RESULT"}, {"to", "all"}}})) << seq;
    ++complete;
  }
  EXPECT_GT(complete, 50u);
  EXPECT_THAT(ran("trace train --packets 3"), HasSubstr("absorbed"));
  EXPECT_THAT(log(), HasSubstr("packets traced by=\"uid:0"));
  // The job has not noticed.
  const auto results = status()["jobs"][0]["results"].get<uint64_t>();
  while (status()["jobs"][0]["results"].get<uint64_t>() == results) ::usleep(1'000);
}

TEST_F(RunningJobTest, TraceOfAJobThatStandsStillSaysWhatCame) {
  run_job("");
  workers_[0]->kill(SIGSTOP);
  workers_[1]->kill(SIGSTOP);
  // More than may still lie in their rings.
  const Outcome outcome = inactl("trace train --packets 4096 --timeout 1s");
  EXPECT_EQ(outcome.status, 4) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("of 4096 packets came within 1 s; `inactl why` says"));
  EXPECT_THAT(complaint("trace nobody"), HasSubstr("there is no job 'nobody'"));
}

TEST_F(RunningJobTest, HeatShowsWhoHoldsTheArray) {
  run_job("");
  workers_[1]->kill(SIGSTOP);
  Json found;
  do {
    found = Json::parse(ran("aggregator -j"));
  } while (found["states"].value("filling", 0) == 0);
  ASSERT_EQ(found["jobs"].size(), 1u);
  EXPECT_GT(found["jobs"][0]["cells"], 0);
  EXPECT_EQ(found["cells"], 512);
  const std::string map = ran("aggregator --heat --by job");
  EXPECT_THAT(map, HasSubstr("512 slots in 1 lane, policy static"));
  EXPECT_THAT(map, HasSubstr("/train"));
  EXPECT_THAT(map, HasSubstr("AA"));
  EXPECT_THAT(ran("job show train"), HasSubstr("waits for rank 1"));
  EXPECT_THAT(ran("port show"), HasSubstr("port shm0\n  type           shm\n"));
}

TEST_F(InactlAdminTest, WhatCreatePrintsIsSafeInAShellWhateverTheNameHolds) {
  start();
  const std::string mark = dir_ / "mark";
  for (const std::string& name :
       {"a\ntouch " + mark + " #", "$(touch " + mark + ")", "`touch " + mark + "`",
        "'; touch " + mark + "; '", "\"; touch " + mark + "; \"", std::string("a\r\x1b[2Jb\\"),
        std::string("-n"), std::string("#")}) {
    // The shell reads the name from a variable, so that nothing of it is evaluated on the way in.
    ::setenv("HOSTILE", name.c_str(), 1);
    Process process({"/bin/sh", "-c",
                     "eval \"$(" + std::string(INACTL) + " --socket " + socket() +
                         " create --workers 1 -- \"$HOSTILE\")\" && printf %s \"$INA_JOB\""});
    const std::string output = process.output();
    // Refused, as names with control characters may be, or the requested name.
    if (process.wait() == 0 && !output.empty()) {
      EXPECT_EQ(output, name);
    }
    ::unsetenv("HOSTILE");
    EXPECT_NE(::access(mark.c_str(), F_OK), 0) << name;
  }
}

TEST_F(InactlAdminTest, ASwitchWithoutAdministratorsHasNoSocket) {
  start("admin: {enabled: false}\n");
  EXPECT_THAT(complaint("undrain", 3), HasSubstr("there is no such file"));
}

}  // namespace
}  // namespace ina

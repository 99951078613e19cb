// inactl: the text it makes of a status, and the program against a switch that is there or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "common/json_schema.h"
#include "common/text_table.h"
#include "control/diagnosis/why.h"
#include "control/socket.h"
#include "programs/inactl/shell_text.h"
#include "programs/inactl/status_format.h"
#include "programs/inactl/top.h"
#include "tests/support/temp_dir.h"

namespace ina::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// As inactl prints it.
Json with_schema(Json object) {
  object["schema"] = kJsonSchema;
  return object;
}

Json sample() {
  return Json::parse(R"({
    "version": "0.1.0", "uptime_s": 3725.5, "boots": 7,
    "ports": [
      {"name": "shm0", "type": "shm", "rx_packets": 1234567, "rx_bytes": 1610612736,
       "tx_packets": 12, "tx_bytes": 1023, "drops": {"bad_offset": 3, "crc": 0}},
      {"name": "uplink", "type": "ethdev", "rx_packets": 0, "rx_bytes": 0,
       "tx_packets": 0, "tx_bytes": 0, "drops": {}}],
    "lcores": [{"lcore": 0, "polls": 4000, "packets": 1000, "sleeps": 2, "busy_ratio": 0.25}],
    "aggregator": {"policy": "static", "slots": 4096, "slot_bytes": 8192, "slots_reserved": 1024,
      "slots_used": 5, "slots_used_peak": 64, "absorbed": 2000, "absorbed_bytes": 1048576,
      "groups": 250, "grouped": 1000, "results": 500, "drops": {"duplicate": 1500}},
    "jobs": [
      {"name": "train", "owner": "uid:1000", "id": 1, "epoch": 7, "world_size": 4,
       "joined": [0, 1], "missing": [2, 3], "state": "joining", "window": 512},
      {"name": "infer", "id": 2, "epoch": 8, "world_size": 4, "joined": [0, 1, 2, 3],
       "missing": [], "state": "running", "window": 512, "waiting_for": [3],
       "oldest_fragment": 17, "oldest_operation": "allreduce sum float32"},
      {"name": "rest", "id": 3, "epoch": 9, "world_size": 1, "joined": [0], "missing": [],
       "state": "running", "window": 64},
      {"name": "back", "id": 4, "epoch": 28672, "world_size": 3, "joined": [1], "missing": [0, 2],
       "state": "rejoining", "window": 64}]})");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_with(const std::string& text, const std::string& part) {
  for (const std::string& line : lines_of(text))
    if (line.find(part) != std::string::npos) return line;
  return "";
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1u << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16.0 EiB");
}

TEST(FormatStatus, ShowsWhatIsForwarded) {
  EXPECT_THAT(format_status(sample()), Not(HasSubstr("FORWARDED"))) << "no bridge, no table";
  Json status = sample();
  status["bridge"] =
      Json::parse(R"({"mac_entries": 12, "mac_capacity": 8192, "moved": 3, "refused": 4})");
  status["ports"][1].update(Json::parse(
      R"({"link": "down", "forwarded": 1000, "flooded": 77, "bridged_sent": 2000,
          "bridged_sent_bytes": 1048576, "bridged_lost": 5, "answered": 6})"));
  const std::string text = format_status(status);
  EXPECT_THAT(text,
              HasSubstr("uplink   down      1,000       77  2,000     1.0 MiB     5         6\n"));
  EXPECT_THAT(text, HasSubstr("12 of 8,192 addresses known, 3 moved, 4 found no room\n"));
}

TEST(FormatStatus, TreesHaveARowForEachOtherSwitch) {
  Json status = sample();
  EXPECT_THAT(format_status(status), Not(HasSubstr("TREE OF JOB")));
  Json& tree = status["jobs"][0]["tree"];
  tree["above"] = {{"url", "tcp:10.9.9.9:7583"}, {"state", "running"}, {"text", ""}};
  tree["below"] = {{{"peer", "10.0.1.254"}, {"ranks", {2u, 3u}}, {"state", "away"}}};
  EXPECT_THAT(format_status(status), ContainsRegex("above +tcp:10.9.9.9:7583 +running"));
  EXPECT_THAT(format_status(status), ContainsRegex("below +10.0.1.254 +ranks 2, 3 +away"));
}

TEST(FormatStatus, SaysVersionAndUptime) {
  EXPECT_THAT(format_status(sample()),
              HasSubstr("ina-switchd 0.1.0, up 1 h 2 min, started 7 times\n"));
}

TEST(FormatStatus, SaysHowManyContributionsCameTogether) {
  EXPECT_THAT(format_status(sample()),
              HasSubstr("absorbed 2,000 contributions (1.0 MiB), 1,000 of them in 250 groups, "
                        "completed 500 results\n"));
}

TEST(FormatStatus, ColumnsLineUp) {
  const std::string text = format_status(sample());
  const std::string heading = line_with(text, "RX PACKETS");
  const std::string first = line_with(text, "1,234,567");
  const std::string second = line_with(text, "uplink");
  ASSERT_FALSE(heading.empty() || first.empty() || second.empty()) << text;
  // The last column is right-aligned, so all three end at the same place.
  EXPECT_EQ(heading.size(), first.size()) << text;
  EXPECT_EQ(heading.size(), second.size()) << text;
  EXPECT_EQ(heading.find("TYPE"), first.find("shm ")) << text;
  EXPECT_EQ(heading.find("TYPE"), second.find("ethdev")) << text;
  EXPECT_THAT(first, HasSubstr("1.5 GiB"));
}

TEST(FormatStatus, ShowsDropsThatHappenedWithTheirMeaning) {
  const std::string text = format_status(sample());
  EXPECT_THAT(line_with(text, "bad_offset"), HasSubstr("payload lies outside the sender's memory"));
  EXPECT_THAT(line_with(text, "bad_offset"), HasSubstr("shm0"));
  EXPECT_THAT(line_with(text, "duplicate"), HasSubstr("1,500  contribution already counted"));
  EXPECT_THAT(line_with(text, "duplicate"), HasSubstr("aggregator"));
  EXPECT_THAT(text, Not(HasSubstr("crc")));
}

TEST(FormatStatus, SaysWhatEachJobWaitsFor) {
  const std::string text = format_status(sample());
  EXPECT_THAT(text, HasSubstr("job uid:1000/train: waiting for ranks 2, 3 to join\n"));
  const std::string first = line_with(text, "uid:1000  ");
  EXPECT_THAT(first, HasSubstr("train"));
  EXPECT_EQ(line_with(text, "OWNER").find("OWNER"), first.find("uid:1000")) << text;
  EXPECT_THAT(text, HasSubstr("job infer: fragment 17 waits for rank 3 (allreduce sum float32)\n"));
  EXPECT_THAT(text, HasSubstr("job rest: 0 fragments completed so far, none is incomplete now\n"));
  EXPECT_THAT(text, HasSubstr("job back: the switch was restarted: waiting for ranks 0, 2 to come "
                              "back\n"));
}

TEST(FormatStatus, ShowsSharedSlotsAndTheirCounters) {
  Json status = sample();
  EXPECT_THAT(format_status(status), Not(HasSubstr("fallback")));
  status["aggregator"].update({{"policy", "esa"},
                               {"home", "workers"},
                               {"preemptions", 1234u},
                               {"reminders", 5u},
                               {"memory_bytes", 1u << 30},
                               {"memory_used_bytes", 1u << 20}});
  status["jobs"][1].update({{"slots_floor", 16u}, {"slots_ceiling", 4096u}, {"slots_held", 77u}});
  const std::string text = format_status(status);
  EXPECT_THAT(text, HasSubstr("aggregator: policy esa (fallback: workers), 4,096 slots"));
  EXPECT_THAT(text, HasSubstr("  1,234 preemptions, 5 reminders\n"));
  EXPECT_THAT(text, HasSubstr("memory of jobs 1.0 MiB of 1.0 GiB\n"));
  status["aggregator"]["memory_held_bytes"] = 1u << 19;
  EXPECT_THAT(format_status(status), HasSubstr("1.0 GiB, 512.0 KiB held after their end\n"));
  EXPECT_THAT(line_with(text, "infer"), HasSubstr("77 of 16..4,096"));
}

TEST(FormatStatus, ShowsTenantsWhereOneHasAQuota) {
  Json status = sample();
  status["tenants"] = Json::parse(R"([
    {"name": "red", "jobs": 1, "workers": 4, "slots_floor": 16, "slots_ceiling": 1024,
     "memory_bytes": 1048576,
     "quota": {"slots_floor": 0, "slots_ceiling": 0, "jobs_max": 0, "workers_max": 0,
               "memory_bytes": 0, "priority_max": 255}}])");
  EXPECT_THAT(format_status(status), Not(HasSubstr("TENANT")));
  EXPECT_EQ(line_with(format_tenants(status), "red"),
            "red        1        4          16          1,024  1.0 MiB       255");
  status["tenants"].push_back(status["tenants"][0]);
  status["tenants"][1].update({{"name", "blue"},
                               {"quota",
                                {{"jobs_max", 2u},
                                 {"workers_max", 8u},
                                 {"slots_floor", 32u},
                                 {"slots_ceiling", 2048u},
                                 {"memory_bytes", 2097152u},
                                 {"priority_max", 7u}}}});
  const std::string line = line_with(format_status(status), "blue");
  for (const char* part : {"1 of 2", "4 of 8", "16 of 32", "1,024 of 2,048", "1.0 MiB of 2.0 MiB"})
    EXPECT_THAT(line, HasSubstr(part));
  EXPECT_THAT(line, ::testing::EndsWith(" 7"));
  EXPECT_THAT(format_tenants(Json::object()), HasSubstr("no tenant"));
}

TEST(FormatStatus, NoJobNoDrop) {
  Json status = sample();
  status["jobs"] = Json::array();
  status["ports"][0]["drops"] = Json::object();
  status["aggregator"]["drops"] = Json::object();
  const std::string text = format_status(status);
  EXPECT_THAT(text, HasSubstr("drops: none\n"));
  EXPECT_THAT(text, HasSubstr("no job: no worker has joined\n"));
}

TEST(FormatStatus, ForeignOrBrokenStatusIsNoCrash) {
  for (const char* text : {"{}", "[]", "null", "3", R"({"ports": 1, "jobs": {"a": 1}})",
                           R"({"jobs": [1, {"state": 5, "joined": "x", "window": -1}]})",
                           R"({"aggregator": {"drops": [1]}, "ports": [{"drops": {"crc": "x"}}]})"})
    EXPECT_FALSE(format_status(Json::parse(text)).empty()) << text;
}

TEST(FormatStatus, NamesCannotDriveTheTerminal) {
  Json status = sample();
  status["jobs"][0]["name"] =
      "a\x1b[2J\nb\xc2\x9b"
      "c\xc3\xa9";
  const std::string text = format_status(status);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("job uid:1000/a\\x1b[2J\\x0ab\\u009bc\xc3\xa9: "));
  // Nor turn a line about, or look like another.
  status["jobs"][0]["name"] = "gnp.\u202egpj\u200b";
  status["jobs"][0]["owner"] = "al\u2066ice";
  EXPECT_THAT(format_status(status), HasSubstr("job al\\u2066ice/gnp.\\u202egpj\\u200b: "));
}

size_t widest(const std::string& text) {
  size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, columns_of(line));
  return most;
}

TEST(FormatStatus, FitsATerminalAndIsWholeWithoutOne) {
  Json status = sample();
  status["jobs"][0]["name"] = std::string(70, 'n') + "end";
  status["ports"][0]["name"] = std::string(70, 'p');
  for (const size_t width : {80u, 100u, 132u}) {
    const std::string text = format_status(status, width);
    EXPECT_LE(widest(text), width) << text;
    EXPECT_THAT(text, HasSubstr("waiting for"));
  }
  EXPECT_THAT(format_status(status, 80), HasSubstr("nnn…  "));
  const std::string whole = format_status(status);
  EXPECT_THAT(whole, Not(HasSubstr("…")));
  EXPECT_THAT(whole, HasSubstr("nend  uid:1000 "));
}

TEST(FormatStatus, AJobThatCompletesFragmentsIsNotIdle) {
  Json status = sample();
  status["jobs"][2]["results"] = 1500u;
  const std::string text = format_status(status);
  EXPECT_THAT(text, HasSubstr("job rest: 1,500 fragments completed so far, none is incomplete"));
  EXPECT_THAT(text, Not(HasSubstr("idle")));
}

std::string shell_output(const std::string& script) {
  FILE* pipe = ::popen(script.c_str(), "r");
  if (!pipe) throw std::runtime_error("popen failed");
  std::string output;
  for (int c; (c = std::fgetc(pipe)) != EOF;) output.push_back(static_cast<char>(c));
  ::pclose(pipe);
  return output;
}

TEST(ShellText, IsOneWordOrOneCommentWhateverItHolds) {
  std::string all;
  for (int c = 1; c < 256; ++c) all.push_back(static_cast<char>(c));
  for (const std::string& text :
       {all, std::string("it's"), std::string("'"), std::string("a\nb\n"), std::string("$(false)"),
        std::string("\\'\\"), std::string("-n"), std::string()}) {
    EXPECT_EQ(shell_output("x=" + shell_word(text) + "; printf '%s|' \"$x\""), text + "|");
    EXPECT_EQ(shell_output(shell_comment(text) + "echo seen"), "seen\n") << text;
  }
  EXPECT_EQ(shell_comment("a\necho b\r\x1b[2J"), "# a\\x0aecho b\\x0d\\x1b[2J\n");
}

struct Outcome {
  int status = 0;
  std::string output;  ///< stdout and stderr
};

Outcome run_inactl(const std::string& arguments, const std::string& redirections = "2>&1") {
  const char* program = std::getenv("INACTL");
  if (!program) throw std::runtime_error("INACTL must name the program under test");
  FILE* pipe = ::popen((std::string(program) + " " + arguments + " " + redirections).c_str(), "r");
  if (!pipe) throw std::runtime_error("popen failed");
  Outcome outcome;
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class Inactl : public ::testing::Test {
 protected:
  std::string socket() const { return folder_ / "switch.sock"; }

  /// Answers one status query, as the switch does, then hangs up.
  static void serve(const std::stop_token& stop, const control::Listener& listener,
                    const Json& status) {
    std::optional<control::Connection> connection;
    while (!(connection = listener.accept().value())) {
      if (stop.stop_requested()) return;
      std::this_thread::yield();
    }
    const auto query = connection->receive(10'000'000'000);
    ASSERT_TRUE(query && *query);
    EXPECT_EQ((*query)->body.at("type"), "status");
    const std::string text = status.dump();
    const Fd file(::memfd_create("status", MFD_CLOEXEC));
    ASSERT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ASSERT_TRUE(connection->send({{"type", "status"}}, {file.get()}));
  }

  test::TempDir folder_;
};

// The deadline is a second; half of it is left for the program to start. A busy machine may be
// late, but not each time.
TEST_F(Inactl, WithoutASwitchTheErrorComesWithinASecondAndNamesTheSocket) {
  const std::string nobody = folder_ / "nobody.sock";
  // The path stays when the listener has gone.
  ASSERT_TRUE(control::listen_unix(nobody, 0600, "control.socket"));
  const std::string file = folder_ / "file";
  std::ofstream(file) << "text";
  const auto expect_error = [](const std::string& command, const std::string& path) {
    SCOPED_TRACE(command + " " + path);
    Outcome outcome;
    auto took = std::chrono::steady_clock::duration::max();
    for (int tries = 0; tries < 4 && took >= std::chrono::seconds(1); ++tries) {
      const auto before = std::chrono::steady_clock::now();
      outcome = run_inactl(command + " --socket " + path);
      took = std::chrono::steady_clock::now() - before;
    }
    EXPECT_LT(took, std::chrono::seconds(1));
    EXPECT_EQ(outcome.status, 3) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(path));
    EXPECT_THAT(outcome.output, HasSubstr("`ina-switchd --config "));
  };
  for (const std::string& path : {socket(), nobody, file, folder_ / "", folder_ / "no/folder"})
    expect_error("status", path);
  for (const char* command : {"top --once", "why", "job show train", "port show"})
    expect_error(command, nobody);
}

/// What a false switch says, and the content of the memory file beside it, if it sends one, which
/// has `bytes` in all if they are more.
struct FalseAnswer {
  std::string text;
  std::optional<std::string> content;
  off_t bytes = 0;
};

/// Says it to each that asks, and hangs up.
void answer_falsely(const std::stop_token& stop, const control::Listener& listener,
                    const FalseAnswer& answer) {
  while (!stop.stop_requested()) {
    const auto connection = listener.accept();
    if (!connection || !*connection) {
      std::this_thread::yield();
      continue;
    }
    if (const auto query = (*connection)->receive(10'000'000'000); !query || !*query) continue;
    std::vector<int> fds;
    const Fd file(::memfd_create("status", MFD_CLOEXEC));
    if (answer.content) {
      ASSERT_EQ(::write(file.get(), answer.content->data(), answer.content->size()),
                static_cast<ssize_t>(answer.content->size()));
      if (answer.bytes != 0) {
        ASSERT_EQ(::ftruncate(file.get(), answer.bytes), 0);
      }
      fds.push_back(file.get());
    }
    (void)(*connection)->send_text(answer.text, fds);
  }
}

// A program with the socket's path is believed nothing: its answer ends in an error or in a text,
// and never in a crash.
TEST_F(Inactl, AFalseSwitchIsNoCrash) {
  auto listener = control::Listener::open(socket(), 0600);
  ASSERT_TRUE(listener) << listener.error().text;
  const std::string status = R"({"type": "status"})";
  const FalseAnswer errors[] = {
      {R"({"type": "refused", "text": 5})", {}},
      {R"({"type": "refused", "status": "x", "text": ["y"], "retry": 3})", {}},
      {R"({"type": 5})", {}},
      {R"({})", {}},
      {"[1, 2]", {}},
      {"\xff no json", {}},
      {R"({"type": "joined"})", {}},
      {std::string(1'000, '['), {}},
      {status, {}},
      {status, "no json"},
      {status, ""},
      {status, "[]"},
      {status, std::string(100'000, '[')},
      {status, "{}", off_t{1} << 40},
      {R"({"type": "status", "status": {}})", {}}};
  const FalseAnswer texts[] = {
      {status, "{}"},
      {status, R"({"jobs": 5, "ports": "x", "lcores": {}, "aggregator": [], "tenants": 1})"},
      {status, R"({"jobs": [1, {"name": 7, "owner": [], "missing": "x", "state": null}],
                   "ports": [{"name": {}, "drops": [1]}], "lcores": [2], "bridge": 3,
                   "aggregator": {"slots": "many", "drops": 7}, "tenants": [{"quota": 1}]})"}};
  const auto run = [&](const FalseAnswer& answer, const char* command) {
    const std::jthread server(
        [&](const std::stop_token& stop) { answer_falsely(stop, *listener, answer); });
    return run_inactl(std::string(command) + " --socket " + socket());
  };
  for (const FalseAnswer& answer : errors) {
    SCOPED_TRACE(answer.text.substr(0, 60) + answer.content.value_or("").substr(0, 60));
    const Outcome outcome = run(answer, "status");
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    EXPECT_THAT(outcome.output, ::testing::StartsWith("inactl: "));
    const Outcome json = run(answer, "status --json");
    EXPECT_EQ(json.status, 1);
    EXPECT_EQ(Json::parse(json.output, nullptr, false).value("status", 0), 1) << json.output;
  }
  for (const FalseAnswer& answer : texts)
    for (const char* command :
         {"status", "status -j", "top --once", "why", "job show train", "port show"}) {
      SCOPED_TRACE(std::string(command) + ": " + *answer.content);
      const Outcome outcome = run(answer, command);
      EXPECT_THAT(outcome.status, ::testing::AnyOf(0, 1)) << outcome.output;
    }
  const Outcome full = run({R"({"type": "refused", "text": "full", "retry": true})", {}}, "status");
  EXPECT_EQ(full.status, 3) << full.output;
}

TEST_F(Inactl, OutputThatCannotBeWrittenIsAnError) {
  auto listener = control::Listener::open(socket(), 0600);
  ASSERT_TRUE(listener) << listener.error().text;
  const FalseAnswer answer = {R"({"type": "status"})", "{}"};
  for (const char* command : {"status", "status --json", "why"}) {
    const std::jthread server(
        [&](const std::stop_token& stop) { answer_falsely(stop, *listener, answer); });
    const Outcome outcome =
        run_inactl(std::string(command) + " --socket " + socket(), "2>&1 >/dev/full");
    EXPECT_EQ(outcome.status, 1) << command;
    EXPECT_THAT(outcome.output, HasSubstr("the output cannot be written")) << command;
  }
}

TEST_F(Inactl, TakesTheSocketFromTheEnvironment) {
  ::setenv("INA_SOCKET", socket().c_str(), 1);
  const Outcome outcome = run_inactl("status");
  ::unsetenv("INA_SOCKET");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.output, HasSubstr(socket()));
}

TEST_F(Inactl, UnknownArgumentsFail) {
  EXPECT_EQ(run_inactl("status --frobnicate").status, 2);
  EXPECT_EQ(run_inactl("").status, 2);
  EXPECT_EQ(run_inactl("status --timeout soon").status, 2);
}

TEST_F(Inactl, HelpHasTheExitStatuses) {
  EXPECT_THAT(run_inactl("--help").output, HasSubstr("3 no switch was reached; 4 not within"));
}

TEST_F(Inactl, PrintsTablesOrTheJsonAsSent) {
  auto listener = control::Listener::open(socket(), 0600);
  ASSERT_TRUE(listener) << listener.error().text;
  for (const bool json : {false, true}) {
    const std::jthread server(
        [&](const std::stop_token& stop) { serve(stop, *listener, sample()); });
    const Outcome outcome =
        run_inactl(std::string("status ") + (json ? "-j " : "") + "--socket " + socket());
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    if (json)
      EXPECT_EQ(Json::parse(outcome.output, nullptr, false), with_schema(sample()));
    else
      EXPECT_EQ(outcome.output, format_status(sample()));
  }
}

TEST_F(Inactl, TopOnceIsOneTableOrObject) {
  auto listener = control::Listener::open(socket(), 0600);
  ASSERT_TRUE(listener) << listener.error().text;
  for (const bool json : {false, true}) {
    const std::jthread server([&](const std::stop_token& stop) {
      for (int look = 0; look < 2; ++look) serve(stop, *listener, sample());
    });
    const Outcome outcome =
        run_inactl(std::string("top --once ") + (json ? "-j " : "") + "--socket " + socket());
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    if (json)
      EXPECT_EQ(Json::parse(outcome.output, nullptr, false),
                with_schema(top_json(top(sample(), sample()))));
    else
      EXPECT_EQ(outcome.output, format_top(top(sample(), sample()), 20));
  }
}

TEST_F(Inactl, WhyLooksSeveralTimesAndSaysTheVerdict) {
  auto listener = control::Listener::open(socket(), 0600);
  ASSERT_TRUE(listener) << listener.error().text;
  const auto ask = [&](const std::string& arguments) {
    const std::jthread server([&](const std::stop_token& stop) {
      for (size_t look = 0; look < diagnosis::kLooks; ++look) serve(stop, *listener, sample());
    });
    return run_inactl("why " + arguments + " --socket " + socket());
  };
  const Outcome text = ask("uid:1000/train");
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr("job uid:1000/train (id 1): joining\n  - ranks 2, 3 of 4"));
  const Outcome object = ask("train --json");
  const Json json = Json::parse(object.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << object.output;
  EXPECT_EQ(json.at("jobs").at(0).at("reasons").at(0).at("cause"), "ranks_missing");
  EXPECT_EQ(Json::parse(ask("-j").output, nullptr, false).at("jobs").size(), 4u) << "all of them";
  const Outcome absent = ask("no-such-job");
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.output, HasSubstr("inactl: there is no job 'no-such-job'"));
}

}  // namespace
}  // namespace ina::cli

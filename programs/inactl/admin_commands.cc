#include "programs/inactl/admin_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "common/command_line.h"
#include "common/json/json.h"
#include "control/client.h"
#include "control/tokens.h"
#include "programs/inactl/heat.h"
#include "programs/inactl/shell_text.h"
#include "programs/inactl/status_format.h"
#include "programs/inactl/status_json.h"
#include "programs/inactl/trace_format.h"

namespace ina::cli {

namespace {

namespace request = control::request;
using Json = nlohmann::json;
using Seconds = std::chrono::seconds;
using Steady = std::chrono::steady_clock;

constexpr uint64_t kLongestTimeoutS = UINT32_MAX / 1000;
/// How often `drain` looks which jobs are left. Over TCP each look is a handshake.
constexpr useconds_t kDrainIntervalUs = 100'000;
constexpr useconds_t kRemoteDrainIntervalUs = 1'000'000;

/// Options of all commands; each uses some.
struct Options {
  Common common;
  std::string job;
  std::string reason;
  std::string owner;
  uint32_t rank = 0;
  request::CreateJob wanted;
  uint64_t ttl_s = 3600;
  uint64_t wait_s = 0;
  bool check = false;
  bool force = false;
  uint32_t packets = 32;
  std::string policy;
  std::optional<uint32_t> ways;
  std::vector<std::string> settings;  ///< "KEY=VALUE"
  bool heat = false;
  HeatBy by = HeatBy::kAge;

  uint64_t timeout_s() const { return common.timeout_s.value_or(10); }
};

/// A switch, as one command asks it.
class Client {
 public:
  static Result<Client> open(const Options& options) {
    auto address = admin_address(options.common);
    if (!address) return tl::unexpected(address.error());
    auto trust = trust_of(options.common);
    if (!trust) return tl::unexpected(trust.error());
    const control::TlsFiles& files = options.common.tls;
    if (control::is_remote(*address) &&
        (files.ca.empty() || files.certificate.empty() || files.key.empty()))
      return fail(INA_ERR_INVALID,
                  "over TCP both ends show a certificate: give --ca, --cert and "
                  "--key (or INA_TLS_CA, INA_TLS_CERT and INA_TLS_KEY)");
    return Client(options, std::move(*address), std::move(*trust));
  }

  /// Tells the user of every result but kDone.
  Exit ask(const request::Message& question, Json& answer) const {
    auto found = try_ask(question, options_.timeout_s());
    if (!found) return told(found.error());
    answer = std::move(*found);
    return kDone;
  }
  Result<Json> try_ask(const request::Message& question, uint64_t timeout_s) const {
    const auto most_s = static_cast<Nanos>(std::min(timeout_s, kLongestTimeoutS));
    return control::administer(address_, question, most_s * kSecondNs, trust_);
  }
  bool is_local() const { return !control::is_remote(address_); }

 private:
  Client(const Options& options, std::string address, control::Trust trust)
      : options_(options), address_(std::move(address)), trust_(std::move(trust)) {}

  Exit told(const Error& error) const {
    const Exit status = exit_of(error.status);
    std::string text = error.text;
    if (status == kTimedOut)
      text = "the switch at " + address_ + " did not answer in time (--timeout)";
    else if (error.status == INA_ERR_SWITCH_LOST)
      text =
          "the switch at " + address_ + " went before it answered, and may have done it: " + text;
    complain(options_.common, status, text);
    return status;
  }

  const Options& options_;
  std::string address_;
  control::Trust trust_;
};

/// Reports the outcome: a line for a person, or an object for a program.
int say(const Options& options, const std::string& line, const nlohmann::json& object) {
  fmt::print("{}", options.common.json ? json_text(object) : printable(line) + "\n");
  return kDone;
}

std::string duration_text(uint64_t seconds) {
  if (seconds % 86'400 == 0) return fmt::format("{} d", seconds / 86'400);
  if (seconds % 3600 == 0) return fmt::format("{} h", seconds / 3600);
  if (seconds % 60 == 0) return fmt::format("{} min", seconds / 60);
  return fmt::format("{} s", seconds);
}

/// Hexadecimal digits, as tickets are: needs no quotes.
bool is_plain(const std::string& ticket) {
  return !ticket.empty() && ticket.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

// ---- the commands

int create(const Options& options, const Client& client) {
  request::CreateJob wanted = options.wanted;
  if (wanted.tenant.empty()) {
    if (!client.is_local())
      return complain(options.common, kUsage,
                      "whose job is it? Give --tenant: the tenant of a token or certificate, or "
                      "uid:NUMBER");
    wanted.tenant = fmt::format("uid:{}", ::getuid());
  }
  // What is longer than the switch lets jobs wait is the switch's to refuse.
  wanted.ttl_ns = static_cast<Nanos>(std::min<uint64_t>(options.ttl_s, UINT32_MAX)) * kSecondNs;
  Json made;
  if (const Exit failed = client.ask(wanted, made)) return failed;
  const std::string ticket = made.value("ticket", "");
  const auto memory_bytes = made.value("memory_bytes", uint64_t{0});
  const auto floor = made.value("slots_floor", 0u);
  const auto ceiling = made.value("slots_ceiling", 0u);
  if (options.common.json) {
    fmt::print("{}",
               json_text({{"ticket", ticket},
                          {"job_id", made.value("job_id", 0u)},
                          {"window", made.value("window", 0u)},
                          {"slots_floor", floor},
                          {"slots_ceiling", ceiling},
                          {"priority_max", made.value("priority_max", 0u)},
                          {"memory_bytes", std::to_string(memory_bytes)},
                          {"expires_in", fmt::format("{}s", made.value("expires_in_s", 0))}}));
    return kDone;
  }
  const std::string slots = floor == ceiling ? fmt::format("{} slots", floor)
                                             : fmt::format("{}..{} slots", floor, ceiling);
  // A shell evaluates all of it.
  fmt::print("{}",
             shell_comment(fmt::format(
                 "job '{}' (id {}) of tenant {}: {} workers, {}, a window of {} fragments, {}",
                 wanted.name, made.value("job_id", 0u), wanted.tenant, wanted.workers, slots,
                 made.value("window", 0u), format_bytes(memory_bytes))));
  fmt::print("{}", shell_comment(fmt::format("waits {} for its workers, which need:",
                                             duration_text(options.ttl_s))));
  fmt::print("export INA_JOB={} INA_WORLD_SIZE={} INA_TICKET={}\n", shell_word(wanted.name),
             wanted.workers, is_plain(ticket) ? ticket : shell_word(ticket));
  return kDone;
}

int abort(const Options& options, const Client& client) {
  Json nothing;
  const request::AbortJob asked{options.job, options.reason, options.owner};
  if (const Exit failed = client.ask(asked, nothing)) return failed;
  return say(options, fmt::format("job '{}' is ended", options.job),
             {{"job", options.job}, {"aborted", true}});
}

int kick(const Options& options, const Client& client) {
  Json nothing;
  const request::KickWorker asked{options.job, options.rank, options.reason, options.owner};
  if (const Exit failed = client.ask(asked, nothing)) return failed;
  return say(options, fmt::format("rank {} of job '{}' is sent away", options.rank, options.job),
             {{"job", options.job}, {"rank", options.rank}, {"kicked", true}});
}

/// How a drain goes on.
struct DrainProgress {
  Json jobs;  ///< that are left: name and owner of each
  bool draining = false;
  bool drained() const { return draining && jobs.empty(); }
  bool operator==(const DrainProgress&) const = default;

  static DrainProgress of(const Json& answer) {
    return {answer.value("jobs", Json::array()), answer.value("draining", false)};
  }
};

void print_progress(const DrainProgress& progress, bool json) {
  std::vector<std::string> names;  // as `inactl abort` takes them
  for (const Json& job : progress.jobs)
    names.push_back(fmt::format("{}/{}", job.value("owner", ""), job.value("name", "")));
  if (json)
    fmt::print("{}", json_text({{"draining", progress.draining},
                                {"drained", progress.drained()},
                                {"jobs", progress.jobs}}));
  else if (progress.drained())
    fmt::print("drained: no job is left, and none is let in\n");
  else
    fmt::print("{} {} left: {}\n", names.size(), names.size() == 1 ? "job is" : "jobs are",
               printable(fmt::format("{}", fmt::join(names, ", "))));
  std::fflush(stdout);
}

int drain(const Options& options, const Client& client) {
  const auto until = Steady::now() + Seconds(std::min(options.wait_s, kLongestTimeoutS));
  Json answer;
  if (const Exit failed = client.ask(request::Drain(), answer)) return failed;
  DrainProgress progress = DrainProgress::of(answer);
  print_progress(progress, options.common.json);
  while (progress.draining && !progress.drained() && Steady::now() < until) {
    ::usleep(client.is_local() ? kDrainIntervalUs : kRemoteDrainIntervalUs);
    if (const Exit failed = client.ask(request::GetDrain(), answer)) return failed;
    auto next = DrainProgress::of(answer);
    if (next != progress) print_progress(next, options.common.json);
    progress = std::move(next);
  }
  if (progress.drained() || options.wait_s == 0) return kDone;
  if (!progress.draining)
    return complain(options.common, kRefused, "somebody has undrained the switch meanwhile");
  return complain(options.common, kTimedOut,
                  fmt::format("not drained after {}; wait again, or end the jobs (inactl abort). "
                              "The switch takes no new ones until `inactl undrain`",
                              duration_text(options.wait_s)));
}

int undrain(const Options& options, const Client& client) {
  Json nothing;
  if (const Exit failed = client.ask(request::Undrain(), nothing)) return failed;
  return say(options, "new jobs are let in again", {{"draining", false}});
}

int aggregator(const Options& options, const Client& client) {
  constexpr size_t kMapColumns = 64;  // where the output is no terminal
  Json slots, status;
  if (const Exit failed = client.ask(request::GetSlots(), slots)) return failed;
  if (const Exit failed = client.ask(request::Status(), status)) return failed;
  const Heat found = heat(slots, status);
  const size_t width = terminal_width();
  const bool colour = ::isatty(STDOUT_FILENO) == 1 && !::getenv("NO_COLOR");
  fmt::print("{}", options.common.json
                       ? json_text(heat_json(found))
                       : format_heat(found, options.heat, options.by,
                                     width == 0 ? kMapColumns : width, colour, width));
  return kDone;
}

/// Prints what either way of asking gives.
int show_trace(const Options& options, const Json& found) {
  fmt::print("{}",
             options.common.json ? json_text(found, 2) : format_trace(found, terminal_width()));
  if (found.value("complete", false)) return kDone;
  const bool job_ended = found.value("job_ended", false);
  // With --json the object says so itself.
  if (!options.common.json) {
    const size_t came = found.value("packets", Json::array()).size();
    std::fflush(stdout);
    fmt::print(stderr, "inactl: {}\n",
               job_ended
                   ? fmt::format("the job ended after {} of {} packets", came, options.packets)
                   : fmt::format("{} of {} packets came within {}; `inactl why` says what the "
                                 "job waits for",
                                 came, options.packets, duration_text(options.timeout_s())));
  }
  return job_ended ? kRefused : kTimedOut;
}

request::Trace wanted_trace(const Options& options) {
  return {
      .job = options.job,
      .owner = options.owner,
      .packets = options.packets,
      .timeout_ms = static_cast<uint32_t>(std::min(options.timeout_s(), kLongestTimeoutS) * 1000)};
}

int trace(const Options& options, const Client& client) {
  Json found;
  if (const Exit failed = client.ask(wanted_trace(options), found)) return failed;
  return show_trace(options, found);
}

/// True if the place for administrators is out of reach, and none was named: then a command that
/// owners may give, too, asks over the control socket.
bool asks_as_owner(const Common& common) {
  if (!common.admin.empty()) return false;
  const auto address = admin_address(common);
  return !address || ::access(address->c_str(), W_OK) != 0;
}

int own_trace(const Options& options) {
  const Common& common = options.common;
  const auto token = control::own_token(::getenv);
  if (!token) return complain(common, exit_of(token.error().status), token.error().text);
  const auto trust = trust_of(common);
  if (!trust) return complain(common, exit_of(trust.error().status), trust.error().text);
  const auto found = control::query_trace(common.socket, wanted_trace(options), *token, *trust);
  if (!found) return complain(common, exit_of(found.error().status), found.error().text);
  return show_trace(options, *found);
}

int tenants(const Options& options, const Client& client) {
  Json status;
  if (const Exit failed = client.ask(request::Status(), status)) return failed;
  fmt::print("{}", options.common.json
                       ? json_text({{"tenants", status.value("tenants", Json::array())}}, 2)
                       : format_tenants(status, terminal_width()));
  return kDone;
}

/// The status of a switch that has started again since it had started `starts` times; null: it has
/// not, or does not answer yet.
Json status_after(const Client& client, uint32_t starts) {
  auto status = client.try_ask(request::Status(), 1);
  if (!status || status->value("boots", uint32_t{0}) <= starts) return nullptr;
  return std::move(*status);
}

/// Waits until the switch is back. Why it does not run with the new configuration; empty: it does.
Result<std::string> await_restart(const Options& options, const Client& client, uint32_t starts) {
  const auto deadline = Steady::now() + Seconds(std::min(options.timeout_s(), kLongestTimeoutS));
  for (;;) {
    if (const auto status = status_after(client, starts); !status.is_null()) {
      const auto configuration = status.find("configuration");
      if (configuration == status.end() || !configuration->is_object()) return std::string();
      return configuration->value("failure", "");
    }
    if (Steady::now() >= deadline)
      return fail(INA_ERR_TIMEOUT,
                  "the switch is not back yet (--timeout); its log says how far it is");
    ::usleep(20'000);
  }
}

/// The change of a configuration, from the switch's answer to Reload or SetPolicy: the object that
/// --json prints.
Json change_json(const Json& answer, std::initializer_list<const char*> rest) {
  Json lost = Json::array();
  for (const Json& job : answer.value("jobs_lost", Json::array()))
    lost.push_back({{"name", job.value("name", "")},
                    {"owner", job.value("owner", "")},
                    {"reason", job.value("text", "")}});
  Json change = {{"changes", answer.value("changes", Json::array())},
                 {"restart", answer.value("restart", false)},
                 {"lost", std::move(lost)},
                 {"applied", answer.value("applied", true)},
                 {"starts", answer.value("starts", 0u)}};
  for (const char* key : rest) change[key] = answer.value(key, Json());
  return change;
}

/// The changes and the jobs that they end. `unchanged`: names the setting that stays as it was.
std::string changes_text(const Json& change, std::string_view unchanged) {
  const bool applied = change["applied"];
  std::string text;
  for (const Json& key : change["changes"])
    text += printable(key.value("text", "")) +
            (key.value("in_place", false) ? "\n" : " (by a restart)\n");
  for (const Json& lost : change["lost"])
    text += printable(fmt::format("{}job {}/{}: {}",
                                  applied ? "ended: " : "would end: ", lost.value("owner", ""),
                                  lost.value("name", ""), lost.value("reason", ""))) +
            "\n";
  if (change["changes"].empty()) text += fmt::format("{} is as it was\n", unchanged);
  if (!applied)
    text += "nothing was done (--check)\n";
  else if (change["restart"].get<bool>())
    text += "the switch has started again, with its jobs\n";
  return text;
}

std::string reload_text(const Json& change) {
  const std::string text = changes_text(change, "the configuration");
  const bool in_place = change["applied"].get<bool>() && !change["restart"].get<bool>();
  return in_place ? text + fmt::format("{} tokens\n", change["tokens"].get<uint64_t>()) : text;
}

/// What is wrong with the switch's ports now, a line each: a configuration that is as it was does
/// not say that they are.
std::string ports_text(const Client& client) {
  std::string text;
  if (const auto status = status_after(client, 0); status.is_object())
    for (const std::string& trouble : port_troubles(status)) text += trouble + "\n";
  return text;
}

/// Where the switch starts again, until it has.
int see_it_through(const Options& options, const Client& client, const Json& change) {
  if (!change["restart"].get<bool>() || !change["applied"].get<bool>()) return kDone;
  const auto failure = await_restart(options, client, change["starts"]);
  if (!failure)
    return complain(options.common, exit_of(failure.error().status), failure.error().text);
  if (failure->empty()) return kDone;
  return complain(
      options.common, kRefused,
      "the switch did not start with it, and goes on with the configuration before: " + *failure);
}

int reload(const Options& options, const Client& client) {
  Json answer;
  const request::Reload asked{.check = options.check, .force = options.force};
  if (const Exit failed = client.ask(asked, answer)) return failed;
  Json change = change_json(answer, {});
  change["tokens"] = answer.value("tokens", 0u);
  if (const int failed = see_it_through(options, client, change)) return failed;
  fmt::print("{}",
             options.common.json ? json_text(change) : reload_text(change) + ports_text(client));
  return kDone;
}

/// The policy after the next reading of the configuration.
std::string file_text(const Json& policy) {
  const std::string file = policy.value("file", "");
  const std::string error = policy.value("file_error", "");
  std::vector<std::string> said;
  for (const Json& key : policy.value("keys", Json::array()))
    if (key.value("value", "") != key.value("in_file", ""))
      said.push_back(fmt::format("{}: {}", key.value("key", ""), key.value("in_file", "")));
  if (file.empty())
    return said.empty() ? ""
                        : fmt::format(
                              "the switch has no configuration file (--config): its next "
                              "start has {} again\n",
                              fmt::join(said, ", "));
  if (!error.empty())
    return fmt::format("the next reload or start reads {}, which is wrong now: {}\n", file, error);
  if (said.empty()) return fmt::format("{} says the same\n", file);
  return fmt::format("{} still says {}: the next reload or start of the switch reads it\n", file,
                     fmt::join(said, ", "));
}

int policy_show(const Options& options, const Client& client) {
  Json policy;
  if (const Exit failed = client.ask(request::GetPolicy(), policy)) return failed;
  if (options.common.json) {
    fmt::print("{}", json_text(policy));
    return kDone;
  }
  std::string text = fmt::format("policy {}\n", policy.value("policy", ""));
  for (const Json& key : policy.value("keys", Json::array()))
    text += fmt::format("  {}: {}\n", key.value("key", ""), key.value("value", ""));
  text += "\nthere are\n";
  for (const Json& known : policy.value("policies", Json::array()))
    text += fmt::format("  {}: {}\n", known.value("name", ""), known.value("summary", ""));
  fmt::print("{}", printable_lines(text + "\n" + file_text(policy)));
  return kDone;
}

int policy_set(const Options& options, const Client& client) {
  request::SetPolicy asked{.name = options.policy, .check = options.check, .force = options.force};
  if (options.ways) asked.settings["aggregator.ways"] = std::to_string(*options.ways);
  for (const std::string& setting : options.settings) {
    const size_t equals = setting.find('=');
    asked.settings[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  Json answer;
  if (const Exit failed = client.ask(asked, answer)) return failed;
  const Json change = change_json(answer, {"keys", "file", "file_error"});
  if (const int failed = see_it_through(options, client, change)) return failed;
  fmt::print("{}",
             options.common.json
                 ? json_text(change)
                 : changes_text(change, "the policy") +
                       printable_lines(change["applied"].get<bool>() ? file_text(change) : ""));
  return kDone;
}

/// Requests carry UTF-8 alone.
command_line::Validator utf8() {
  return command_line::Validator([](const std::string& text) {
    try {
      (void)nlohmann::json(text).dump();
      return std::string();
    } catch (const nlohmann::json::exception&) {
      return "'" + text + "' is not UTF-8";
    }
  });
}

constexpr const char* kOwnerHelp =
    "Whose job is meant, uid:1000 or a tenant, where several have the name; or JOB as "
    "uid:1000/train";

/// Adds the commands to the command line. They share their options, since one command is chosen.
class AdminCommands {
 public:
  AdminCommands(command_line::App& app, const Common& common, std::function<int()>& chosen)
      : app_(app), common_(common), chosen_(chosen) {}

  /// In the order in which --help shows them.
  void add_all() {
    add_create();
    add_abort();
    add_kick();
    add_drain();
    add_aggregator();
    add_trace();
    add("undrain", "Lets new jobs in again", undrain);
    add("tenants", "What tenants have, of what they may have", tenants);
    add_reload();
    add_policy();
  }

 private:
  using Run = int (*)(const Options&, const Client&);
  using RunAlone = int (*)(const Options&);

  /// `as_owner`: runs if asks_as_owner().
  command_line::App* add_to(command_line::App& parent, const char* name, const char* help, Run run,
                            RunAlone as_owner = nullptr);
  command_line::App* add(const char* name, const char* help, Run run) {
    return add_to(app_, name, help, run);
  }
  void add_create();
  void add_abort();
  void add_kick();
  void add_drain();
  void add_aggregator();
  void add_trace();
  void add_reload();
  void add_policy();
  void add_policy_set(command_line::App& policies);

  command_line::App& app_;
  const Common& common_;
  std::function<int()>& chosen_;
  const std::shared_ptr<Options> options_ = std::make_shared<Options>();
};

command_line::App* AdminCommands::add_to(command_line::App& parent, const char* name,
                                         const char* help, Run run, RunAlone as_owner) {
  command_line::App* command = parent.add_subcommand(name, help);
  // Runs after this object's time.
  command->callback([&chosen = chosen_, &common = common_, options = options_, run, as_owner] {
    chosen = [&common, options, run, as_owner] {
      options->common = common;
      if (as_owner && asks_as_owner(common)) return as_owner(*options);
      auto client = Client::open(*options);
      return client ? run(*options, *client)
                    : complain(common, exit_of(client.error().status), client.error().text);
    };
  });
  return command;
}

void AdminCommands::add_create() {
  request::CreateJob& wanted = options_->wanted;
  command_line::App* made =
      add("create", "Reserves a job, and prints the ticket that its workers need", create);
  made->add_option("name", wanted.name, "Its name")->required()->check(utf8());
  made->add_option("--workers", wanted.workers, fmt::format("How many, 1..{}", kMaxRanks))
      ->required();
  made->add_option("--tenant", wanted.tenant,
                   "Whose it is: the tenant of a token or certificate, or uid:NUMBER [you]")
      ->check(utf8());
  made->add_option("--slots-floor", wanted.slots_floor, "Slots that it must have");
  made->add_option("--slots-ceiling", wanted.slots_ceiling, "Most slots that it may hold");
  made->add_option_function<uint32_t>(
          "--priority-max",
          [&wanted](uint32_t value) { wanted.priority_max = static_cast<uint8_t>(value); },
          "Highest priority of its fragments, 1..255")
      ->check(command_line::within(1, 255));
  made->add_option("--window", wanted.window_bytes,
                   "How far its workers may run ahead, in bytes, or e.g. 4MiB")
      ->transform(command_line::size())
      ->type_name("SIZE");
  made->add_option("--ttl", options_->ttl_s, "How long it waits for its workers, e.g. 30m")
      ->transform(command_line::duration())
      ->type_name("TIME")
      ->default_str("1 h");
}

void AdminCommands::add_abort() {
  command_line::App* ended = add("abort", "Ends a job for all its workers", abort);
  ended->add_option("job", options_->job, "Its name")->required()->check(utf8());
  ended->add_option("--owner", options_->owner, kOwnerHelp)->check(utf8());
  ended->add_option("--reason", options_->reason, "What its workers are told")->check(utf8());
}

void AdminCommands::add_kick() {
  command_line::App* kicked =
      add("kick", "Sends a worker away; a job that has begun ends with it", kick);
  kicked->add_option("job", options_->job, "The job's name")->required()->check(utf8());
  kicked->add_option("rank", options_->rank, "The worker's rank")->required();
  kicked->add_option("--owner", options_->owner, kOwnerHelp)->check(utf8());
  kicked->add_option("--reason", options_->reason, "What the workers are told")->check(utf8());
}

void AdminCommands::add_drain() {
  command_line::App* drained =
      add("drain", "Lets no new jobs in, and waits until those there are have ended", drain);
  drained
      ->add_option("--wait", options_->wait_s,
                   "How long, e.g. 10m; the exit status is 0 if none is left then. 0: say which "
                   "jobs there are, and do not wait")
      ->transform(command_line::duration())
      ->type_name("TIME")
      ->default_str("0 s");
}

void AdminCommands::add_aggregator() {
  command_line::App* array =
      add("aggregator", "The holders of the slots of the array, and the age of what they hold",
          aggregator);
  array->add_flag("--heat", options_->heat,
                  "With a map: a character for each slot, or for several");
  command_line::add_choice<HeatBy>(
      *array, "--by", options_->by,
      {{"age", HeatBy::kAge}, {"job", HeatBy::kJob}, {"state", HeatBy::kState}},
      "What the map shows of a slot");
}

void AdminCommands::add_trace() {
  command_line::App* traced =
      add_to(app_, "trace",
             "The next packets of a job, and their fates; waits for --timeout. For the job's owner "
             "and administrators",
             trace, own_trace);
  traced->add_option("job", options_->job, "The job's name")->required()->check(utf8());
  traced->add_option("--packets", options_->packets, "How many, 1..4096")
      ->check(command_line::within(1, 4096))
      ->capture_default_str();
  traced->add_option("--owner", options_->owner, kOwnerHelp)->check(utf8());
}

void AdminCommands::add_reload() {
  command_line::App* reloaded =
      add("reload",
          "Has the switch read its configuration, tokens and certificates again, "
          "and open its log again",
          reload);
  reloaded->add_flag("--check", options_->check, "Only say what would happen");
  reloaded->add_flag("--force", options_->force,
                     "End the jobs that cannot go on with the new configuration");
}

void AdminCommands::add_policy() {
  command_line::App* policies = app_.add_subcommand("policy", "The allocation policy");
  policies->require_subcommand(1);
  add_to(*policies, "show", "The policy in force, those that there are, and what the file says",
         policy_show);
  add_policy_set(*policies);
}

void AdminCommands::add_policy_set(command_line::App& policies) {
  command_line::App* changed =
      add_to(policies, "set",
             "Another policy while jobs run, as by `reload`. The configuration's "
             "file stays as it is, and its next reader has what it says",
             policy_set);
  changed->add_option("name", options_->policy, "Its name, as `policy show` lists it")
      ->required()
      ->check(utf8());
  changed->add_option("--ways", options_->ways,
                      "Slots that a fragment has to choose from: 1, 2, 4, 8");
  changed
      ->add_option("--set", options_->settings,
                   "Another key of the policy, as `policy show` lists it, e.g. esa.decay=time; "
                   "more than one may be given")
      ->check(utf8())
      ->check(command_line::Validator([](const std::string& text) {
        return text.find('=') == std::string::npos ? "'" + text + "' is not KEY=VALUE" : "";
      }))
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  changed->add_flag("--check", options_->check, "Only say what would happen");
  changed->add_flag("--force", options_->force, "End the jobs that cannot go on with it");
}

}  // namespace

void add_admin_commands(command_line::App& app, const Common& common,
                        std::function<int()>& chosen) {
  AdminCommands(app, common, chosen).add_all();
}

}  // namespace ina::cli

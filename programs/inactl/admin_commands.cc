#include "programs/inactl/admin_commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/command_line.h"
#include "common/json/json.h"
#include "control/bounded_json.h"
#include "control/client.h"
#include "control/socket.h"
#include "control/tls_files.h"
#include "control/tokens.h"
#include "ina_admin.grpc.pb.h"
#include "programs/inactl/heat.h"
#include "programs/inactl/shell_text.h"
#include "programs/inactl/status_format.h"
#include "programs/inactl/status_json.h"
#include "programs/inactl/trace_format.h"

namespace ina::cli {

namespace {

namespace v1 = admin::v1;
using Json = nlohmann::json;
using Seconds = std::chrono::seconds;

/// How long the switch may take to tell what it has traced.
constexpr uint64_t kTraceAnswerS = 5;

/// Of some commands.
struct Options {
  Common common;
  std::string job;
  std::string reason;
  std::string owner;
  uint32_t rank = 0;
  v1::CreateJobRequest wanted;
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

bool is_unix(const std::string& address) {
  return address.starts_with("unix:");
}

struct Failure {
  Exit status;
  std::string text;
};

/// A call that failed, as a person needs it told.
Failure failure_of(const grpc::Status& status, const std::string& target) {
  const std::string& said = status.error_message();
  const auto has = [&](const char* part) { return said.find(part) != std::string::npos; };
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return {kTimedOut, said == "Deadline Exceeded"
                           ? "the switch at " + target + " did not answer in time (--timeout)"
                           : said};
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return {kRefused, said};
  std::string hint;
  const bool hung_up = has("Socket closed") || has("Connection reset") || has("andshake");
  if (has("ertificate verify failed") || has("Peer name"))
    hint =
        "; the switch's certificate was not accepted: is it signed by --ca, and does it name "
        "the host?";
  else if (hung_up && !is_unix(target))
    hint = "; is --cert signed by the switch's admin.client_ca?";
  else if (has("Permission denied") || hung_up)
    hint = "; administrators are root, the switch's own user, and its admin.group";
  else if (has("connect") || has("No such file"))
    hint = is_unix(target) ? "; is ina-switchd running, and is this its admin.socket?"
                           : "; is ina-switchd running, and is this its admin.listen?";
  else
    return {kRefused, said};  // the switch itself says so
  return {kNoSwitch, "no answer from the switch at " + target + ": " + said + hint};
}

/// A connection to a switch, for one command.
class Client {
 public:
  static Result<Client> open(const Options& options) {
    auto target = admin_target(options.common);
    if (!target) return tl::unexpected(target.error());
    Client client(options, std::move(*target));
    auto channel = is_unix(client.target_) ? client.open_unix() : client.open_tcp(options);
    if (!channel) return tl::unexpected(channel.error());
    client.stub_ = v1::Administration::NewStub(*channel);
    return client;
  }

  /// Makes one call. Tells the user of every result but kDone.
  template <class Method, class Request, class Response>
  Exit call(Method method, const Request& request, Response& response) {
    grpc::ClientContext context;
    set_deadline(context, timeout_s_);
    return told(((*stub_).*method)(&context, request, &response));
  }

  static void set_deadline(grpc::ClientContext& context, uint64_t seconds) {
    context.set_deadline(std::chrono::system_clock::now() + Seconds(seconds));
  }
  Exit told(const grpc::Status& status) const {
    if (status.ok()) return kDone;
    const Failure failure = failure_of(status, target_);
    complain(common_, failure.status, failure.text);
    return failure.status;
  }
  bool is_local() const { return is_unix(target_); }
  v1::Administration::Stub& stub() { return *stub_; }

 private:
  Client(const Options& options, std::string target)
      : target_(std::move(target)), timeout_s_(options.timeout_s()), common_(options.common) {}

  using Channel = std::shared_ptr<grpc::Channel>;

  static grpc::ChannelArguments arguments() {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);
    return arguments;
  }
  /// The connection is made here, so that the server is known before anything is said to it.
  Result<Channel> open_unix() const {
    const auto trust = trust_of(common_);
    if (!trust) return tl::unexpected(trust.error());
    const std::string path = target_.substr(std::string_view("unix:").size());
    const auto address = control::unix_address(path);
    if (!address) return tl::unexpected(address.error());
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval most{static_cast<time_t>(timeout_s_), 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
      return no_switch(
          {grpc::StatusCode::UNAVAILABLE, std::string("cannot connect: ") + std::strerror(errno)});
    if (const auto trusted = control::check_server(fd.get(), path, *trust); !trusted)
      return fail(INA_ERR_NO_SWITCH, trusted.error().text);
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    return grpc::CreateCustomInsecureChannelFromFd(target_, fd.release(), arguments());
  }
  tl::unexpected<Error> no_switch(const grpc::Status& status) const {
    return fail(INA_ERR_NO_SWITCH, failure_of(status, target_).text);
  }
  Result<Channel> open_tcp(const Options& options) const {
    const control::TlsFiles& files = options.common.tls;
    if (files.ca.empty() || files.certificate.empty() || files.key.empty())
      return fail(INA_ERR_INVALID,
                  "over TCP both ends show a certificate: give --ca, --cert and "
                  "--key (or INA_TLS_CA, INA_TLS_CERT and INA_TLS_KEY)");
    auto pem = control::read_tls_files(files, {"--cert", "--key", "--ca", false});
    if (!pem) return tl::unexpected(pem.error());
    return grpc::CreateCustomChannel(
        target_, grpc::SslCredentials({pem->ca, pem->key, pem->certificate}), arguments());
  }

  std::string target_;
  uint64_t timeout_s_;
  Common common_;
  std::unique_ptr<v1::Administration::Stub> stub_;
};

/// Numbers of 64 bits are texts in it: that is how protobuf's JSON has them.
std::string json_of(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

/// As `--json` prints it.
std::string json_text_of(const google::protobuf::Message& message) {
  return json_text(Json::parse(json_of(message), nullptr, false));
}

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

int create(const Options& options, Client& client) {
  v1::CreateJobRequest request = options.wanted;
  if (request.tenant().empty()) {
    if (!client.is_local())
      return complain(options.common, kUsage,
                      "whose job is it? Give --tenant: the tenant of a token or certificate, or "
                      "uid:NUMBER");
    request.set_tenant(fmt::format("uid:{}", ::getuid()));
  }
  request.mutable_ttl()->set_seconds(static_cast<int64_t>(options.ttl_s));
  v1::CreateJobResponse made;
  if (const Exit failed = client.call(&v1::Administration::Stub::CreateJob, request, made))
    return failed;
  if (options.common.json) {
    fmt::print("{}", json_text_of(made));
    return kDone;
  }
  const std::string slots =
      made.slots_floor() == made.slots_ceiling()
          ? fmt::format("{} slots", made.slots_floor())
          : fmt::format("{}..{} slots", made.slots_floor(), made.slots_ceiling());
  // A shell evaluates all of it.
  fmt::print("{}",
             shell_comment(fmt::format(
                 "job '{}' (id {}) of tenant {}: {} workers, {}, a window of {} fragments, {}",
                 request.name(), made.job_id(), request.tenant(), request.workers(), slots,
                 made.window(), format_bytes(made.memory_bytes()))));
  fmt::print("{}", shell_comment(fmt::format("waits {} for its workers, which need:",
                                             duration_text(options.ttl_s))));
  fmt::print("export INA_JOB={} INA_WORLD_SIZE={} INA_TICKET={}\n", shell_word(request.name()),
             request.workers(),
             is_plain(made.ticket()) ? made.ticket() : shell_word(made.ticket()));
  return kDone;
}

int abort(const Options& options, Client& client) {
  v1::AbortJobRequest request;
  request.set_name(options.job);
  request.set_reason(options.reason);
  request.set_owner(options.owner);
  v1::AbortJobResponse response;
  if (const Exit failed = client.call(&v1::Administration::Stub::AbortJob, request, response))
    return failed;
  return say(options, fmt::format("job '{}' is ended", options.job),
             {{"job", options.job}, {"aborted", true}});
}

int kick(const Options& options, Client& client) {
  v1::KickWorkerRequest request;
  request.set_job(options.job);
  request.set_rank(options.rank);
  request.set_reason(options.reason);
  request.set_owner(options.owner);
  v1::KickWorkerResponse response;
  if (const Exit failed = client.call(&v1::Administration::Stub::KickWorker, request, response))
    return failed;
  return say(options, fmt::format("rank {} of job '{}' is sent away", options.rank, options.job),
             {{"job", options.job}, {"rank", options.rank}, {"kicked", true}});
}

void print_progress(const v1::DrainProgress& progress, bool json) {
  nlohmann::json jobs = nlohmann::json::array();
  std::vector<std::string> names;  // as `inactl abort` takes them
  for (const v1::OwnedJob& job : progress.left()) {
    jobs.push_back({{"name", job.name()}, {"owner", job.owner()}});
    names.push_back(fmt::format("{}/{}", job.owner(), job.name()));
  }
  if (json)
    fmt::print("{}", json_text({{"draining", progress.draining()},
                                {"drained", progress.drained()},
                                {"jobs", jobs}}));
  else if (progress.drained())
    fmt::print("drained: no job is left, and none is let in\n");
  else
    fmt::print("{} {} left: {}\n", names.size(), names.size() == 1 ? "job is" : "jobs are",
               printable(fmt::format("{}", fmt::join(names, ", "))));
  std::fflush(stdout);
}

int drain(const Options& options, Client& client) {
  v1::DrainRequest request;
  request.mutable_timeout()->set_seconds(static_cast<int64_t>(options.wait_s));
  grpc::ClientContext context;
  Client::set_deadline(context, options.wait_s + options.timeout_s());
  const auto reader = client.stub().Drain(&context, request);
  v1::DrainProgress progress, told;
  // The last says how it ended, even if that is nothing new.
  while (reader->Read(&progress)) {
    if (json_of(progress) != json_of(told)) print_progress(progress, options.common.json);
    told = progress;
  }
  if (const Exit failed = client.told(reader->Finish())) return failed;
  if (progress.drained() || options.wait_s == 0) return kDone;
  if (!progress.draining())
    return complain(options.common, kRefused, "somebody has undrained the switch meanwhile");
  return complain(options.common, kTimedOut,
                  fmt::format("not drained after {}; wait again, or end the jobs (inactl abort). "
                              "The switch takes no new ones until `inactl undrain`",
                              duration_text(options.wait_s)));
}

int undrain(const Options& options, Client& client) {
  v1::UndrainResponse response;
  if (const Exit failed =
          client.call(&v1::Administration::Stub::Undrain, v1::UndrainRequest(), response))
    return failed;
  return say(options, "new jobs are let in again", {{"draining", false}});
}

/// An answer's `json`, which must be an object.
template <class Response>
Exit parse(const Options& options, const Response& response, Json& json) {
  json = control::parse_bounded(response.json());
  if (json.is_object()) return kDone;
  complain(options.common, kRefused,
           fmt::format("the switch sent an answer that is no JSON object, or one of more than {} "
                       "parts",
                       control::kMaxJsonParts));
  return kRefused;
}

/// The switch's status, as administrators get it.
Exit ask_status(const Options& options, Client& client, Json& status) {
  v1::StatusResponse response;
  if (const Exit failed =
          client.call(&v1::Administration::Stub::Status, v1::StatusRequest(), response))
    return failed;
  return parse(options, response, status);
}

/// Characters that fit into a line of the terminal; 64 if the output is no terminal.
size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : 64;
}

int aggregator(const Options& options, Client& client) {
  v1::SlotsResponse response;
  if (const Exit failed =
          client.call(&v1::Administration::Stub::Slots, v1::SlotsRequest(), response))
    return failed;
  Json slots, status;
  if (const Exit failed = parse(options, response, slots)) return failed;
  if (const Exit failed = ask_status(options, client, status)) return failed;
  const Heat found = heat(slots, status);
  const bool colour = ::isatty(STDOUT_FILENO) == 1 && !::getenv("NO_COLOR");
  fmt::print("{}", options.common.json
                       ? json_text(heat_json(found))
                       : format_heat(found, options.heat, options.by, terminal_columns(), colour));
  return kDone;
}

/// Prints what either way of asking gives.
int show_trace(const Options& options, const Json& found) {
  fmt::print("{}", options.common.json ? json_text(found, 2) : format_trace(found));
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

int trace(const Options& options, Client& client) {
  v1::TraceRequest request;
  request.set_job(options.job);
  request.set_owner(options.owner);
  request.set_packets(options.packets);
  request.mutable_timeout()->set_seconds(static_cast<int64_t>(options.timeout_s()));
  grpc::ClientContext context;
  Client::set_deadline(context, options.timeout_s() + kTraceAnswerS);
  v1::TraceResponse response;
  if (const Exit failed = client.told(client.stub().Trace(&context, request, &response)))
    return failed;
  Json found;
  if (const Exit failed = parse(options, response, found)) return failed;
  return show_trace(options, found);
}

/// Whether the place for administrators is out of reach, and none was named: then a command that
/// owners may give, too, asks over the control socket.
bool asks_as_owner(const Common& common) {
  if (!common.admin.empty()) return false;
  const auto target = admin_target(common);
  return !target || ::access(target->c_str() + std::string_view("unix:").size(), W_OK) != 0;
}

int own_trace(const Options& options) {
  const Common& common = options.common;
  const auto token = control::own_token(::getenv);
  if (!token) return complain(common, exit_of(token.error().status), token.error().text);
  const auto trust = trust_of(common);
  if (!trust) return complain(common, exit_of(trust.error().status), trust.error().text);
  constexpr uint64_t kMostS = UINT32_MAX / 1000;
  const auto found = control::query_trace(
      common.socket,
      {.job = options.job,
       .owner = options.owner,
       .packets = options.packets,
       .timeout_ms = static_cast<uint32_t>(std::min(options.timeout_s(), kMostS) * 1000)},
      *token, *trust);
  if (!found) return complain(common, exit_of(found.error().status), found.error().text);
  return show_trace(options, *found);
}

int tenants(const Options& options, Client& client) {
  Json status;
  if (const Exit failed = ask_status(options, client, status)) return failed;
  fmt::print("{}", options.common.json
                       ? json_text({{"tenants", status.value("tenants", Json::array())}}, 2)
                       : format_tenants(status));
  return kDone;
}

/// The status of a switch that has started again since it had started `starts` times; null: it has
/// not, or does not answer yet.
nlohmann::json status_after(const Options& options, uint32_t starts) {
  auto client = Client::open(options);
  if (!client) return nullptr;
  grpc::ClientContext context;
  Client::set_deadline(context, 1);
  v1::StatusResponse response;
  if (!client->stub().Status(&context, v1::StatusRequest(), &response).ok()) return nullptr;
  auto status = control::parse_bounded(response.json());
  if (!status.is_object() || status.value("boots", uint32_t{0}) <= starts) return nullptr;
  return status;
}

/// Waits until the switch is back. Why it does not run with the new configuration; empty: it does.
Result<std::string> await_restart(const Options& options, uint32_t starts) {
  const auto deadline = std::chrono::steady_clock::now() + Seconds(options.timeout_s());
  for (;;) {
    if (const auto status = status_after(options, starts); !status.is_null()) {
      const auto configuration = status.find("configuration");
      if (configuration == status.end() || !configuration->is_object()) return std::string();
      return configuration->value("failure", "");
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return fail(INA_ERR_TIMEOUT,
                  "the switch is not back yet (--timeout); its log says how far it is");
    ::usleep(20'000);
  }
}

/// The changes and the jobs that they end. `unchanged`: names the setting that stays as it was.
template <class Response>
std::string changes_text(const Response& response, std::string_view unchanged) {
  std::string text;
  for (const v1::Change& change : response.changes())
    text += printable(change.text()) + (change.in_place() ? "\n" : " (by a restart)\n");
  for (const v1::LostJob& lost : response.lost())
    text += printable(fmt::format("{}job {}/{}: {}", response.applied() ? "ended: " : "would end: ",
                                  lost.owner(), lost.name(), lost.reason())) +
            "\n";
  if (response.changes().empty()) text += fmt::format("{} is as it was\n", unchanged);
  if (!response.applied())
    text += "nothing was done (--check)\n";
  else if (response.restart())
    text += "the switch has started again, with its jobs\n";
  return text;
}

std::string reload_text(const v1::ReloadResponse& response) {
  const std::string text = changes_text(response, "the configuration");
  const bool in_place = response.applied() && !response.restart();
  return in_place ? text + fmt::format("{} tokens\n", response.tokens()) : text;
}

/// What is wrong with the switch's ports now, a line each: a configuration that is as it was does
/// not say that they are.
std::string ports_text(const Options& options) {
  std::string text;
  if (const auto status = status_after(options, 0); status.is_object())
    for (const std::string& trouble : port_troubles(status)) text += trouble + "\n";
  return text;
}

/// Where the switch starts again, until it has.
template <class Response>
int see_it_through(const Options& options, const Response& response) {
  if (!response.restart() || !response.applied()) return kDone;
  const auto failure = await_restart(options, response.starts());
  if (!failure)
    return complain(options.common, exit_of(failure.error().status), failure.error().text);
  if (failure->empty()) return kDone;
  return complain(
      options.common, kRefused,
      "the switch did not start with it, and goes on with the configuration before: " + *failure);
}

int reload(const Options& options, Client& client) {
  v1::ReloadRequest request;
  request.set_check(options.check);
  request.set_force(options.force);
  v1::ReloadResponse response;
  if (const Exit failed = client.call(&v1::Administration::Stub::Reload, request, response))
    return failed;
  if (const int failed = see_it_through(options, response)) return failed;
  fmt::print("{}", options.common.json ? json_text_of(response)
                                       : reload_text(response) + ports_text(options));
  return kDone;
}

/// The policy after the next reading of the configuration.
template <class Response>
std::string file_text(const Response& response) {
  std::vector<std::string> said;
  for (const v1::PolicyKey& key : response.keys())
    if (key.value() != key.in_file())
      said.push_back(fmt::format("{}: {}", key.key(), key.in_file()));
  if (response.file().empty())
    return said.empty() ? ""
                        : fmt::format(
                              "the switch has no configuration file (--config): its next "
                              "start has {} again\n",
                              fmt::join(said, ", "));
  if (!response.file_error().empty())
    return fmt::format("the next reload or start reads {}, which is wrong now: {}\n",
                       response.file(), response.file_error());
  if (said.empty()) return fmt::format("{} says the same\n", response.file());
  return fmt::format("{} still says {}: the next reload or start of the switch reads it\n",
                     response.file(), fmt::join(said, ", "));
}

int policy_show(const Options& options, Client& client) {
  v1::PolicyResponse response;
  if (const Exit failed =
          client.call(&v1::Administration::Stub::Policy, v1::PolicyRequest(), response))
    return failed;
  if (options.common.json) {
    fmt::print("{}", json_text_of(response));
    return kDone;
  }
  std::string text = fmt::format("policy {}\n", response.policy());
  for (const v1::PolicyKey& key : response.keys())
    text += fmt::format("  {}: {}\n", key.key(), key.value());
  text += "\nthere are\n";
  for (const v1::KnownPolicy& known : response.policies())
    text += fmt::format("  {}: {}\n", known.name(), known.summary());
  fmt::print("{}", printable_lines(text + "\n" + file_text(response)));
  return kDone;
}

int policy_set(const Options& options, Client& client) {
  v1::SetPolicyRequest request;
  request.set_policy(options.policy);
  request.set_check(options.check);
  request.set_force(options.force);
  const auto set = [&request](const std::string& key, const std::string& value) {
    v1::PolicySetting& setting = *request.add_settings();
    setting.set_key(key);
    setting.set_value(value);
  };
  if (options.ways) set("aggregator.ways", std::to_string(*options.ways));
  for (const std::string& setting : options.settings) {
    const size_t equals = setting.find('=');
    set(setting.substr(0, equals), setting.substr(equals + 1));
  }
  v1::SetPolicyResponse response;
  if (const Exit failed = client.call(&v1::Administration::Stub::SetPolicy, request, response))
    return failed;
  if (const int failed = see_it_through(options, response)) return failed;
  if (options.common.json) {
    fmt::print("{}", json_text_of(response));
    return kDone;
  }
  fmt::print("{}{}", changes_text(response, "the policy"),
             printable_lines(response.applied() ? file_text(response) : ""));
  return kDone;
}

/// Requests carry UTF-8 alone.
CLI::Validator utf8() {
  return CLI::Validator(
      [](const std::string& text) {
        try {
          (void)nlohmann::json(text).dump();
          return std::string();
        } catch (const nlohmann::json::exception&) {
          return "'" + text + "' is not UTF-8";
        }
      },
      "");
}

constexpr const char* kOwnerHelp =
    "Whose job is meant, uid:1000 or a tenant, where several have the name; or JOB as "
    "uid:1000/train";

/// Adds the commands to the command line. They share their options, since one command is chosen.
class AdminCommands {
 public:
  AdminCommands(CLI::App& app, const Common& common, std::function<int()>& chosen)
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
  using Run = int (*)(const Options&, Client&);
  using RunAlone = int (*)(const Options&);

  /// `as_owner`: runs if asks_as_owner().
  CLI::App* add_to(CLI::App& parent, const char* name, const char* help, Run run,
                   RunAlone as_owner = nullptr);
  CLI::App* add(const char* name, const char* help, Run run) {
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
  void add_policy_set(CLI::App& policies);

  CLI::App& app_;
  const Common& common_;
  std::function<int()>& chosen_;
  const std::shared_ptr<Options> options_ = std::make_shared<Options>();
};

CLI::App* AdminCommands::add_to(CLI::App& parent, const char* name, const char* help, Run run,
                                RunAlone as_owner) {
  CLI::App* command = parent.add_subcommand(name, help);
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
  v1::CreateJobRequest* wanted = &options_->wanted;
  const auto set = [wanted](auto setter) {
    return [wanted, setter](auto value) { (wanted->*setter)(value); };
  };
  using Wanted = v1::CreateJobRequest;
  CLI::App* made =
      add("create", "Reserves a job, and prints the ticket that its workers need", create);
  made->add_option_function<std::string>(
          "name", [wanted](const std::string& name) { wanted->set_name(name); }, "Its name")
      ->required()
      ->check(utf8());
  made->add_option_function<uint32_t>("--workers", set(&Wanted::set_workers), "How many, 1..64")
      ->required();
  made->add_option_function<std::string>(
          "--tenant", [wanted](const std::string& tenant) { wanted->set_tenant(tenant); },
          "Whose it is: the tenant of a token or certificate, or uid:NUMBER [you]")
      ->check(utf8());
  made->add_option_function<uint32_t>("--slots-floor", set(&Wanted::set_slots_floor),
                                      "Slots that it must have");
  made->add_option_function<uint32_t>("--slots-ceiling", set(&Wanted::set_slots_ceiling),
                                      "Most slots that it may hold");
  made->add_option_function<uint32_t>("--priority-max", set(&Wanted::set_priority_max),
                                      "Highest priority of its fragments, 1..255");
  made->add_option_function<uint64_t>("--window", set(&Wanted::set_window_bytes),
                                      "How far its workers may run ahead, in bytes, or e.g. 4MiB")
      ->transform(command_line::size())
      ->type_name("SIZE");
  made->add_option("--ttl", options_->ttl_s, "How long it waits for its workers, e.g. 30m")
      ->transform(command_line::duration())
      ->type_name("TIME")
      ->default_str("1 h");
}

void AdminCommands::add_abort() {
  CLI::App* ended = add("abort", "Ends a job for all its workers", abort);
  ended->add_option("job", options_->job, "Its name")->required()->check(utf8());
  ended->add_option("--owner", options_->owner, kOwnerHelp)->check(utf8());
  ended->add_option("--reason", options_->reason, "What its workers are told")->check(utf8());
}

void AdminCommands::add_kick() {
  CLI::App* kicked = add("kick", "Sends a worker away; a job that has begun ends with it", kick);
  kicked->add_option("job", options_->job, "The job's name")->required()->check(utf8());
  kicked->add_option("rank", options_->rank, "The worker's rank")->required();
  kicked->add_option("--owner", options_->owner, kOwnerHelp)->check(utf8());
  kicked->add_option("--reason", options_->reason, "What the workers are told")->check(utf8());
}

void AdminCommands::add_drain() {
  CLI::App* drained =
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
  CLI::App* array =
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
  CLI::App* traced =
      add_to(app_, "trace",
             "The next packets of a job, and their fates; waits for --timeout. For the job's owner "
             "and administrators",
             trace, own_trace);
  traced->add_option("job", options_->job, "The job's name")->required()->check(utf8());
  traced->add_option("--packets", options_->packets, "How many, 1..4096")
      ->check(CLI::Range(1, 4096).description(""))
      ->capture_default_str();
  traced->add_option("--owner", options_->owner, kOwnerHelp)->check(utf8());
}

void AdminCommands::add_reload() {
  CLI::App* reloaded = add("reload",
                           "Has the switch read its configuration, tokens and certificates again, "
                           "and open its log again",
                           reload);
  reloaded->add_flag("--check", options_->check, "Only say what would happen");
  reloaded->add_flag("--force", options_->force,
                     "End the jobs that cannot go on with the new configuration");
}

void AdminCommands::add_policy() {
  CLI::App* policies = app_.add_subcommand("policy", "The allocation policy");
  policies->require_subcommand(1);
  add_to(*policies, "show", "The policy in force, those that there are, and what the file says",
         policy_show);
  add_policy_set(*policies);
}

void AdminCommands::add_policy_set(CLI::App& policies) {
  CLI::App* changed = add_to(policies, "set",
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
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text.find('=') == std::string::npos ? "'" + text + "' is not KEY=VALUE" : "";
          },
          ""))
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  changed->add_flag("--check", options_->check, "Only say what would happen");
  changed->add_flag("--force", options_->force, "End the jobs that cannot go on with it");
}

}  // namespace

void add_admin_commands(CLI::App& app, const Common& common, std::function<int()>& chosen) {
  // failure_of() reports failures of calls, and values are checked before they are sent.
  gpr_set_log_function([](gpr_log_func_args*) {});
  AdminCommands(app, common, chosen).add_all();
}

}  // namespace ina::cli

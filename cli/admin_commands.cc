#include "cli/admin_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/status_format.h"
#include "control/client.h"
#include "control/tls_files.h"
#include "ina_admin.grpc.pb.h"

namespace ina::cli {

namespace {

namespace v1 = admin::v1;
using Seconds = std::chrono::seconds;

/// What all commands take.
struct Options {
  std::string address;
  control::TlsFiles tls;
  bool json = false;
  uint64_t timeout_s = 10;
  // Of some.
  std::string job;
  std::string reason;
  std::string owner;
  uint32_t rank = 0;
  v1::CreateJobRequest wanted;
  uint64_t ttl_s = 3600;
  uint64_t wait_s = 0;
};

int complain(const std::string& text) {
  fmt::print(stderr, "inactl: {}\n", text);
  return EXIT_FAILURE;
}

bool is_unix(const std::string& address) {
  return address.starts_with("unix:");
}

/// As gRPC wants it.
std::string target_of(const Options& options) {
  if (options.address.starts_with('/')) return "unix:" + options.address;
  if (!options.address.empty()) return options.address;
  const char* socket = ::getenv("INA_SOCKET");
  return "unix:" + std::string(socket && *socket ? socket : control::kDefaultSocket) + ".admin";
}

/// A call that failed, as a person needs it told.
std::string text_of(const grpc::Status& status, const std::string& target) {
  const std::string& said = status.error_message();
  const auto has = [&](const char* part) { return said.find(part) != std::string::npos; };
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && said == "Deadline Exceeded")
    return "the switch at " + target + " did not answer in time (--timeout)";
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return said;
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
    return said;  // the switch itself says so
  return "no answer from the switch at " + target + ": " + said + hint;
}

/// A connection to a switch, for one command.
class Client {
 public:
  static Result<Client> open(const Options& options) {
    Client client(options);
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    if (is_unix(client.target_)) {
      credentials = grpc::InsecureChannelCredentials();
    } else {
      if (options.tls.ca.empty() || options.tls.certificate.empty() || options.tls.key.empty())
        return fail(INA_ERR_INVALID,
                    "over TCP both ends show a certificate: give --ca, --cert and "
                    "--key (or INA_TLS_CA, INA_TLS_CERT and INA_TLS_KEY)");
      auto pem = control::read_tls_files(options.tls, {"--cert", "--key", "--ca", false});
      if (!pem) return tl::unexpected(pem.error());
      credentials = grpc::SslCredentials({pem->ca, pem->key, pem->certificate});
    }
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);
    client.stub_ = v1::Administration::NewStub(
        grpc::CreateCustomChannel(client.target_, credentials, arguments));
    return client;
  }

  /// Makes one call. False: it failed, and the user was told.
  template <class Method, class Request, class Response>
  bool call(Method method, const Request& request, Response& response) {
    grpc::ClientContext context;
    set_deadline(context, timeout_s_);
    return succeeded(((*stub_).*method)(&context, request, &response));
  }

  static void set_deadline(grpc::ClientContext& context, uint64_t seconds) {
    context.set_deadline(std::chrono::system_clock::now() + Seconds(seconds));
  }
  bool succeeded(const grpc::Status& status) const {
    if (!status.ok()) complain(text_of(status, target_));
    return status.ok();
  }
  v1::Administration::Stub& stub() { return *stub_; }

 private:
  explicit Client(const Options& options)
      : target_(target_of(options)), timeout_s_(options.timeout_s) {}

  std::string target_;
  uint64_t timeout_s_;
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

/// For a shell: 'it'\''s'.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return fmt::format("'{}'", out);
}

std::string duration_text(uint64_t seconds) {
  if (seconds % 86'400 == 0) return fmt::format("{} d", seconds / 86'400);
  if (seconds % 3600 == 0) return fmt::format("{} h", seconds / 3600);
  if (seconds % 60 == 0) return fmt::format("{} min", seconds / 60);
  return fmt::format("{} s", seconds);
}

// ---- the commands

int create(const Options& options, Client& client) {
  v1::CreateJobRequest request = options.wanted;
  if (request.tenant().empty()) {
    if (!is_unix(target_of(options)))
      return complain(
          "whose job is it? Give --tenant: the tenant of a token or certificate, or "
          "uid:NUMBER");
    request.set_tenant(fmt::format("uid:{}", ::getuid()));
  }
  request.mutable_ttl()->set_seconds(static_cast<int64_t>(options.ttl_s));
  v1::CreateJobResponse made;
  if (!client.call(&v1::Administration::Stub::CreateJob, request, made)) return EXIT_FAILURE;
  if (options.json) {
    fmt::print("{}\n", json_of(made));
    return EXIT_SUCCESS;
  }
  const std::string slots =
      made.slots_floor() == made.slots_ceiling()
          ? fmt::format("{} slots", made.slots_floor())
          : fmt::format("{}..{} slots", made.slots_floor(), made.slots_ceiling());
  fmt::print("# job {} (id {}) of tenant {}: {} workers, {}, a window of {} fragments, {}\n",
             quoted(request.name()), made.job_id(), request.tenant(), request.workers(), slots,
             made.window(), format_bytes(made.memory_bytes()));
  fmt::print("# waits {} for its workers, which need:\n", duration_text(options.ttl_s));
  fmt::print("export INA_JOB={} INA_WORLD_SIZE={} INA_TICKET={}\n", quoted(request.name()),
             request.workers(), made.ticket());
  return EXIT_SUCCESS;
}

int abort(const Options& options, Client& client) {
  v1::AbortJobRequest request;
  request.set_name(options.job);
  request.set_reason(options.reason);
  request.set_owner(options.owner);
  v1::AbortJobResponse response;
  return client.call(&v1::Administration::Stub::AbortJob, request, response) ? EXIT_SUCCESS
                                                                             : EXIT_FAILURE;
}

int kick(const Options& options, Client& client) {
  v1::KickWorkerRequest request;
  request.set_job(options.job);
  request.set_rank(options.rank);
  request.set_reason(options.reason);
  request.set_owner(options.owner);
  v1::KickWorkerResponse response;
  return client.call(&v1::Administration::Stub::KickWorker, request, response) ? EXIT_SUCCESS
                                                                               : EXIT_FAILURE;
}

void print_progress(const v1::DrainProgress& progress, bool json) {
  if (json)
    fmt::print("{}\n", nlohmann::json{{"draining", progress.draining()},
                                      {"drained", progress.drained()},
                                      {"jobs", progress.jobs()}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  else if (progress.drained())
    fmt::print("drained: no job is left, and none is let in\n");
  else
    fmt::print("{} {} left: {}\n", progress.jobs_size(),
               progress.jobs_size() == 1 ? "job is" : "jobs are",
               printable(fmt::format("{}", fmt::join(progress.jobs(), ", "))));
  std::fflush(stdout);
}

int drain(const Options& options, Client& client) {
  v1::DrainRequest request;
  request.mutable_timeout()->set_seconds(static_cast<int64_t>(options.wait_s));
  grpc::ClientContext context;
  Client::set_deadline(context, options.wait_s + options.timeout_s);
  const auto reader = client.stub().Drain(&context, request);
  v1::DrainProgress progress, told;
  // The last says how it ended, even if that is nothing new.
  while (reader->Read(&progress)) {
    if (json_of(progress) != json_of(told)) print_progress(progress, options.json);
    told = progress;
  }
  if (!client.succeeded(reader->Finish())) return EXIT_FAILURE;
  if (progress.drained() || options.wait_s == 0) return EXIT_SUCCESS;
  if (!progress.draining()) return complain("somebody has undrained the switch meanwhile");
  return complain(
      fmt::format("not drained after {}; wait again, or end the jobs (inactl abort). "
                  "The switch takes no new ones until `inactl undrain`",
                  duration_text(options.wait_s)));
}

int undrain(const Options&, Client& client) {
  v1::UndrainResponse response;
  return client.call(&v1::Administration::Stub::Undrain, v1::UndrainRequest(), response)
             ? EXIT_SUCCESS
             : EXIT_FAILURE;
}

int tenants(const Options& options, Client& client) {
  v1::StatusResponse response;
  if (!client.call(&v1::Administration::Stub::Status, v1::StatusRequest(), response))
    return EXIT_FAILURE;
  const auto status = nlohmann::json::parse(response.json(), nullptr, false);
  if (!status.is_object()) return complain("the switch sent a status that is no JSON");
  fmt::print("{}", options.json ? status.value("tenants", nlohmann::json::array()).dump(2) + "\n"
                                : format_tenants(status));
  return EXIT_SUCCESS;
}

int reload(const Options& options, Client& client) {
  v1::ReloadTokensResponse response;
  if (!client.call(&v1::Administration::Stub::ReloadTokens, v1::ReloadTokensRequest(), response))
    return EXIT_FAILURE;
  fmt::print("{}\n",
             options.json ? json_of(response) : fmt::format("{} tokens", response.tokens()));
  return EXIT_SUCCESS;
}

/// "90 s", "10m", "2h".
CLI::AsNumberWithUnit duration() {
  return CLI::AsNumberWithUnit(std::map<std::string, uint64_t>{
      {"s", 1}, {"min", 60}, {"m", 60}, {"h", 3600}, {"d", 86'400}});
}

}  // namespace

void add_admin_commands(CLI::App& app, std::function<int()>& chosen) {
  // What fails is told in text_of().
  gpr_set_log_function([](gpr_log_func_args*) {});
  const auto options = std::make_shared<Options>();
  using Run = int (*)(const Options&, Client&);
  const auto add = [&](const char* name, const char* help, Run run) {
    CLI::App* command = app.add_subcommand(name, help);
    command
        ->add_option("--admin", options->address,
                     "The switch: unix:PATH, its admin.socket, or HOST:PORT, its admin.listen")
        ->envname("INA_ADMIN")
        ->default_str("the control socket's path (INA_SOCKET) and \".admin\"");
    command->add_option("--ca", options->tls.ca, "HOST:PORT: who signed the switch's certificate")
        ->envname("INA_TLS_CA");
    command->add_option("--cert", options->tls.certificate, "HOST:PORT: your own certificate")
        ->envname("INA_TLS_CERT");
    command->add_option("--key", options->tls.key, "HOST:PORT: its private key")
        ->envname("INA_TLS_KEY");
    command->add_option("--timeout", options->timeout_s, "How long to wait for an answer")
        ->transform(duration())
        ->default_str("10 s");
    command->add_flag("-j,--json", options->json, "JSON, for programs");
    command->callback([&chosen, options, run] {
      chosen = [options, run] {
        auto client = Client::open(*options);
        return client ? run(*options, *client) : complain(client.error().text);
      };
    });
    return command;
  };
  v1::CreateJobRequest* wanted = &options->wanted;
  const auto set = [wanted](auto setter) {
    return [wanted, setter](auto value) { (wanted->*setter)(value); };
  };
  using Wanted = v1::CreateJobRequest;

  CLI::App* made =
      add("create", "Reserves a job, and prints the ticket that its workers need", create);
  made->add_option_function<std::string>(
          "name", [wanted](const std::string& name) { wanted->set_name(name); }, "Its name")
      ->required();
  made->add_option_function<uint32_t>("--workers", set(&Wanted::set_workers), "How many, 1..64")
      ->required();
  made->add_option_function<std::string>(
      "--tenant", [wanted](const std::string& tenant) { wanted->set_tenant(tenant); },
      "Whose it is: the tenant of a token or certificate, or uid:NUMBER [you]");
  made->add_option_function<uint32_t>("--slots-floor", set(&Wanted::set_slots_floor),
                                      "Slots that it must have");
  made->add_option_function<uint32_t>("--slots-ceiling", set(&Wanted::set_slots_ceiling),
                                      "Most slots that it may hold");
  made->add_option_function<uint32_t>("--priority-max", set(&Wanted::set_priority_max),
                                      "Highest priority of its fragments, 1..255");
  made->add_option_function<uint64_t>("--window", set(&Wanted::set_window_bytes),
                                      "How far its workers may run ahead, in bytes, or e.g. 4MiB")
      ->transform(CLI::AsSizeValue(false));
  made->add_option("--ttl", options->ttl_s, "How long it waits for its workers, e.g. 30m")
      ->transform(duration())
      ->default_str("1 h");

  const char* owner_help =
      "Whose job is meant, uid:1000 or a tenant, where several have the name; or JOB as "
      "uid:1000/train";
  CLI::App* ended = add("abort", "Ends a job for all its workers", abort);
  ended->add_option("job", options->job, "Its name")->required();
  ended->add_option("--owner", options->owner, owner_help);
  ended->add_option("--reason", options->reason, "What its workers are told");

  CLI::App* kicked = add("kick", "Sends a worker away; a job that has begun ends with it", kick);
  kicked->add_option("job", options->job, "The job's name")->required();
  kicked->add_option("rank", options->rank, "The worker's rank")->required();
  kicked->add_option("--owner", options->owner, owner_help);
  kicked->add_option("--reason", options->reason, "What the workers are told");

  CLI::App* drained =
      add("drain", "Lets no new jobs in, and waits until those there are have ended", drain);
  drained
      ->add_option("--wait", options->wait_s,
                   "How long, e.g. 10m; the exit status is 0 if none is left then. 0: say which "
                   "jobs there are, and do not wait")
      ->transform(duration())
      ->default_str("0 s");
  add("undrain", "Lets new jobs in again", undrain);
  add("tenants", "What tenants have, of what they may have", tenants);
  add("reload", "Has the switch read its token file again", reload);
}

}  // namespace ina::cli

#include "client/settings.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "client/abi.h"
#include "control/tokens.h"
#include "control/trust.h"

namespace ina::client {

namespace {

struct Found {
  const char* variable;
  std::string value;
};

std::optional<Found> first_of(const Environment& environment,
                              std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (const char* value = environment(variable); value && *value) return Found{variable, value};
  return std::nullopt;
}

Result<int64_t> number(const Found& found, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = found.value.data() + found.value.size();
  const auto [stop, error] = std::from_chars(found.value.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high)
    return fail(INA_ERR_INVALID, std::string(found.variable) + "='" + found.value +
                                     "' is not a number in " + std::to_string(low) + ".." +
                                     std::to_string(high));
  return value;
}

/// A field of the config if it is set, else the first of the variables that is, else `fallback`.
Result<int64_t> field(const char* name, int64_t configured, bool is_set, int64_t low, int64_t high,
                      const Environment& environment, std::initializer_list<const char*> variables,
                      std::optional<int64_t> fallback) {
  if (is_set) {
    if (configured < low || configured > high)
      return fail(INA_ERR_INVALID, std::string("ina_config.") + name + ": " +
                                       std::to_string(configured) + " is not in " +
                                       std::to_string(low) + ".." + std::to_string(high));
    return configured;
  }
  if (const auto found = first_of(environment, variables)) return number(*found, low, high);
  if (fallback) return *fallback;
  std::string list;
  for (const char* variable : variables) list += (list.empty() ? "" : ", ") + std::string(variable);
  return fail(INA_ERR_INVALID, std::string("ina_config.") + name + " is not set, and none of " +
                                   list + " is either");
}

Result<IdleMode> idle_mode(const std::string& text) {
  if (const auto mode = value_in(kIdleModeNames, text)) return *mode;
  return fail(INA_ERR_INVALID,
              "INA_IDLE='" + text + "' is none of auto, spin, yield, backoff, interrupt");
}

Result<bool> is_reproducible(const std::string& text) {
  if (text == "native") return false;
  if (text == "reproducible") return true;
  return fail(INA_ERR_INVALID, "INA_NUMERIC='" + text + "' is none of native, reproducible");
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// torchrun's, or nothing. Without --rdzv-id its run id is "none", in every run: then the name is
/// made of the address of rank 0's port, which the workers of this run alone share.
std::optional<std::string> torchrun_job(const Environment& environment) {
  const auto run = first_of(environment, {"TORCHELASTIC_RUN_ID"});
  if (!run) return std::nullopt;
  if (run->value != "none") return run->value;
  const auto address = first_of(environment, {"MASTER_ADDR"});
  const auto port = first_of(environment, {"MASTER_PORT"});
  if (!address || !port) return std::nullopt;
  const auto here = first_of(environment, {"LOCAL_WORLD_SIZE"});
  const auto all = first_of(environment, {"WORLD_SIZE"});
  // Agents on several hosts count their restarts apart.
  if (!here || !all || here->value != all->value)
    return "torchrun-" + address->value + ":" + port->value;
  // On one host the address may be 127.0.0.1, as on every other one.
  const auto restarts = first_of(environment, {"TORCHELASTIC_RESTART_COUNT"});
  return "torchrun-" + host_name() + ":" + port->value + "." + (restarts ? restarts->value : "0");
}

/// A step of Slurm's is a run of its own.
std::optional<std::string> slurm_job(const Environment& environment) {
  const auto job = first_of(environment, {"SLURM_JOB_ID"});
  if (!job) return std::nullopt;
  const auto step = first_of(environment, {"SLURM_STEP_ID"});
  return step ? job->value + "." + step->value : job->value;
}

/// An indexed job of Kubernetes' gives its pods the host names JOB-0, JOB-1, ...
std::optional<std::string> kubernetes_job(const Environment& environment) {
  const auto index = first_of(environment, {"JOB_COMPLETION_INDEX"});
  const auto host = first_of(environment, {"HOSTNAME"});
  if (!index || !host) return std::nullopt;
  const std::string ending = "-" + index->value;
  if (host->value.size() <= ending.size() || !host->value.ends_with(ending)) return std::nullopt;
  return host->value.substr(0, host->value.size() - ending.size());
}

std::string job_name(const Environment& environment) {
  if (const auto own = first_of(environment, {"INA_JOB"})) return own->value;
  if (auto name = torchrun_job(environment)) return *name;
  if (const auto pmix = first_of(environment, {"PMIX_NAMESPACE"})) return pmix->value;
  if (auto name = slurm_job(environment)) return *name;
  return kubernetes_job(environment).value_or("default");
}

/// The caller's config, with defaults for fields that it does not have.
Result<ina_config> with_defaults(const ina_config* config) {
  ina_config completed;
  ina_config_init(&completed);
  if (!config) return completed;
  // A caller built against an older header hands over a shorter struct; it keeps its defaults.
  if (config->struct_size < offsetof(ina_config, world_size) + sizeof(config->world_size) ||
      config->struct_size > sizeof(ina_config) || config->struct_size % alignof(ina_config) != 0)
    return fail(INA_ERR_INVALID, "ina_config.struct_size " + std::to_string(config->struct_size) +
                                     " fits no version of ina_config up to this library's (" +
                                     std::to_string(sizeof(ina_config)) +
                                     "): call ina_config_init");
  std::memcpy(&completed, config, config->struct_size);
  return completed;
}

/// The switch, the job, and this worker's place in it.
Result<void> resolve_place(const ina_config& c, const Environment& environment,
                           Settings& settings) {
  const auto url = first_of(environment, {"INA_URL"});
  settings.url = c.url ? c.url : url ? url->value : "shm:/run/ina/switch.sock";
  settings.job = c.job ? c.job : job_name(environment);
  const auto owner = first_of(environment, {"INA_JOB_OWNER"});
  settings.job_owner = owner ? owner->value : "";
  const auto world =
      field("world_size", c.world_size, c.world_size != -1, 1, kMaxRanks, environment,
            {"INA_WORLD_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"},
            std::nullopt);
  if (!world) return tl::unexpected(world.error());
  const auto rank = field("rank", c.rank, c.rank != -1, 0, *world - 1, environment,
                          {"INA_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                           "JOB_COMPLETION_INDEX"},
                          std::nullopt);
  if (!rank) return tl::unexpected(rank.error());
  settings.rank = static_cast<uint32_t>(*rank);
  settings.world_size = static_cast<uint32_t>(*world);
  return {};
}

Result<void> resolve_timeouts(const ina_config& c, const Environment& environment,
                              Settings& settings) {
  const auto timeout_us = field("timeout_us", c.timeout_us, c.timeout_us != 0, 1, int64_t{1} << 50,
                                environment, {"INA_TIMEOUT_US"}, 30'000'000);
  if (!timeout_us) return tl::unexpected(timeout_us.error());
  const auto rejoin_us =
      field("rejoin_timeout_us", c.rejoin_timeout_us, c.rejoin_timeout_us != 0, 1, int64_t{1} << 50,
            environment, {"INA_REJOIN_TIMEOUT_US"}, 30'000'000);
  if (!rejoin_us) return tl::unexpected(rejoin_us.error());
  settings.timeout_ns = *timeout_us * 1000;
  // A year is no limit, so it is none for a switch that is not there, either.
  constexpr int64_t kNoLimitUs = int64_t{365} * 24 * 3600 * 1'000'000;
  settings.waits_for_switch =
      c.timeout_us < kNoLimitUs &&
      (c.timeout_us != 0 || first_of(environment, {"INA_TIMEOUT_US"}).has_value());
  settings.rejoin_timeout_ns = *rejoin_us * 1000;
  return {};
}

Result<void> resolve_sizes(const ina_config& c, const Environment& environment,
                           Settings& settings) {
  const auto window =
      field("window_bytes", static_cast<int64_t>(c.window_bytes), c.window_bytes != 0, 1,
            int64_t{1} << 40, environment, {"INA_WINDOW_BYTES"}, 0);
  if (!window) return tl::unexpected(window.error());
  const auto threads = field("copy_threads", c.copy_threads, c.copy_threads != 0, 1, 256,
                             environment, {"INA_COPY_THREADS"}, 0);
  if (!threads) return tl::unexpected(threads.error());
  const auto coalesce =
      field("coalesce_bytes", static_cast<int64_t>(c.coalesce_bytes), c.coalesce_bytes != 0, 0,
            int64_t{64} << 20, environment, {"INA_COALESCE_BYTES"}, 0);
  if (!coalesce) return tl::unexpected(coalesce.error());
  settings.window_bytes = static_cast<uint64_t>(*window);
  settings.coalesce_bytes = static_cast<size_t>(*coalesce);
  settings.copy_threads = static_cast<int>(*threads);
  return {};
}

/// Settings that are one of a few words.
Result<void> resolve_modes(const ina_config& c, const Environment& environment,
                           Settings& settings) {
  const auto idle_wanted = idle_of(c.idle);
  if (!idle_wanted)
    return fail(INA_ERR_INVALID, "ina_config.idle: " + std::to_string(c.idle) + " is no ina_idle");
  settings.idle = *idle_wanted;
  if (const auto idle = first_of(environment, {"INA_IDLE"}); idle && c.idle == INA_IDLE_AUTO) {
    const auto mode = idle_mode(idle->value);
    if (!mode) return tl::unexpected(mode.error());
    settings.idle = *mode;
  }
  if (c.numeric < INA_NUMERIC_DEFAULT || c.numeric > INA_NUMERIC_REPRODUCIBLE)
    return fail(INA_ERR_INVALID,
                "ina_config.numeric: " + std::to_string(c.numeric) + " is no ina_numeric");
  settings.reproducible = c.numeric == INA_NUMERIC_REPRODUCIBLE;
  const auto numeric = first_of(environment, {"INA_NUMERIC"});
  if (numeric && c.numeric == INA_NUMERIC_DEFAULT) {
    const auto reproducible = is_reproducible(numeric->value);
    if (!reproducible) return tl::unexpected(reproducible.error());
    settings.reproducible = *reproducible;
  }
  return {};
}

Result<void> resolve_credentials(const Environment& environment, Settings& settings) {
  auto token = control::own_token(environment);
  if (!token) return tl::unexpected(token.error());
  settings.token = std::move(*token);
  auto ticket = control::own_ticket(environment);
  if (!ticket) return tl::unexpected(ticket.error());
  settings.ticket = std::move(*ticket);
  settings.tls = control::own_tls_files(environment);
  const auto user = control::own_switch_user(environment);
  if (!user) return tl::unexpected(user.error());
  settings.switch_user = *user;
  return {};
}

}  // namespace

Result<Settings> resolve(const ina_config* config, const Environment& environment) {
  const auto c = with_defaults(config);
  if (!c) return tl::unexpected(c.error());
  Settings settings;
  for (const auto resolve_some : {resolve_place, resolve_timeouts, resolve_sizes, resolve_modes})
    if (auto done = resolve_some(*c, environment, settings); !done)
      return tl::unexpected(done.error());
  if (auto done = resolve_credentials(environment, settings); !done)
    return tl::unexpected(done.error());
  return settings;
}

std::map<std::string, std::string> shared_settings(const Settings& settings) {
  return {{"INA_NUMERIC", settings.reproducible ? "reproducible" : "native"},
          {"INA_COALESCE_BYTES", std::to_string(settings.coalesce_bytes)}};
}

}  // namespace ina::client

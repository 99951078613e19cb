#include "switchd/reload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/logging/record.h"
#include "scheduler/policies.h"
#include "switchd/config/keys.h"

namespace ina::switchd {

namespace request = control::request;

namespace {

using control::Json;

tl::unexpected<AdminError> invalid(std::string text) {
  return tl::unexpected(AdminError{AdminError::Code::kInvalid, std::move(text)});
}

/// A name that its owner made up, within a line.
std::string within_line(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return name;
}

tl::unexpected<AdminError> starting_again() {
  return tl::unexpected(AdminError{AdminError::Code::kUnavailable, "the switch is starting again"});
}

tl::unexpected<AdminError> no_configuration() {
  return invalid("this switch has no configuration that could be changed");
}

std::vector<std::string> policy_key_names() {
  std::vector<std::string> names;
  for (const config::Key& key : config::keys())
    if (config::is_of_policy(key)) names.push_back(config::full_name(key));
  return names;
}

bool is_policy_key(const std::string& name) {
  const auto names = policy_key_names();
  return std::ranges::find(names, name) != names.end();
}

/// Sentences as one text.
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "\n") + text;
  return all;
}

std::string text_of(const std::vector<config::ConfigError>& errors) {
  std::vector<std::string> texts;
  for (const config::ConfigError& error : errors) texts.push_back(error.to_string());
  return joined(texts);
}

}  // namespace

bool Reload::Plan::restart() const {
  return std::ranges::any_of(changes,
                             [](const config::Change& change) { return !change.in_place; });
}

AdminAnswer Reload::carry_out(const request::Reload& asked, const std::string& who) {
  if (next_) return starting_again();
  if (!config_.configuration || config_.configuration->file().empty()) {
    if (asked.check) return invalid("this switch has no configuration file (--config)");
    const auto tokens = read_rest(who);
    if (!tokens) return tl::unexpected(tokens.error());
    return Json{{"tokens", *tokens}};
  }
  auto plan = make_plan(config_.configuration->read());
  if (!plan) return tl::unexpected(plan.error());
  return carry_out(std::move(*plan), asked, "inactl reload", who);
}

/// Nothing is changed yet.
tl::expected<Reload::Plan, AdminError> Reload::make_plan(Read version) const {
  const Configuration& configuration = *config_.configuration;
  if (!version) return invalid(text_of(version.error()));
  Plan plan{.version = std::move(*version)};
  plan.changes = config::changes(configuration.running().config, plan.version.config);
  if (plan.changes.empty()) return plan;
  if (configuration.daemon.obstacles) {
    const auto texts = configuration.daemon.obstacles(plan.version.config);
    if (!texts.empty()) return invalid(joined(texts));
  }
  if (plan.restart()) {
    const ConductorConfig next =
        conductor_config(plan.version.config, frame_ports_of(plan.version.config));
    plan.losses = losses_under(next, jobs_, Moment::now());
  }
  return plan;
}

AdminAnswer Reload::carry_out(Plan plan, const request::Reload& asked, const std::string& command,
                              const std::string& who) {
  Json answer = answer_of(plan, asked.check);
  if (asked.check) return answer;
  if (!plan.losses.empty() && !asked.force) {
    std::vector<std::string> texts = {fmt::format(
        "jobs could not go on, so nothing was changed; --force ({}) ends them:", command)};
    for (const Loss& loss : plan.losses)
      texts.push_back(
          fmt::format("  {}/{}: {}", loss.job->owner(), within_line(loss.job->name), loss.why));
    return tl::unexpected(AdminError{AdminError::Code::kNoRoom, joined(texts)});
  }
  Configuration& configuration = *config_.configuration;
  if (configuration.daemon.reloading) configuration.daemon.reloading();
  for (const config::Change& change : plan.changes)
    logging::info("configuration changes")("key", change.key)("before", change.before)(
        "after", change.after)("in_place", change.in_place)("by", who);
  tl::expected<size_t, AdminError> tokens = 0;
  if (plan.restart()) {
    logging::info("starting again with another configuration")("by", who);
    end_lost(plan);
    next_ = std::move(plan.version);
  } else {
    tokens = apply(plan, who);
    if (configuration.daemon.reloaded) configuration.daemon.reloaded();
    if (!tokens) return tl::unexpected(tokens.error());
  }
  answer["tokens"] = *tokens;
  return answer;
}

AdminAnswer Reload::policy() const {
  if (!config_.configuration) return no_configuration();
  Json policies = Json::array();
  for (const auto& [name, kind] : scheduler::kPolicyNames)
    policies.push_back(
        {{"name", std::string(name)}, {"summary", std::string(scheduler::traits(kind).summary)}});
  const config::Config& running = config_.configuration->running().config;
  Json answer = policy_keys(running);
  answer["policy"] = std::string(name(running.aggregator.policy.kind));
  answer["policies"] = std::move(policies);
  return answer;
}

AdminAnswer Reload::set_policy(const request::SetPolicy& asked, const std::string& who) {
  if (next_) return starting_again();
  if (!config_.configuration) return no_configuration();
  auto version = with_policy(asked);
  if (!version) return tl::unexpected(version.error());
  const Json keys = policy_keys(version->config);
  auto plan = make_plan(std::move(*version));
  if (!plan) return tl::unexpected(plan.error());
  Json answer;
  if (plan->changes.empty()) {
    // Nor are tokens or certificates read again.
    answer = answer_of(*plan, asked.check);
  } else {
    auto done = carry_out(std::move(*plan), {.check = asked.check, .force = asked.force},
                          "inactl policy set", who);
    if (!done) return done;
    answer = std::move(*done);
  }
  answer.update(keys);
  return answer;
}

/// The running configuration, but for the policy. Other changes of the file since it was read are
/// left to `inactl reload`.
tl::expected<Configuration::Version, AdminError> Reload::with_policy(
    const request::SetPolicy& asked) const {
  const Configuration& configuration = *config_.configuration;
  Source source = configuration.running().source;
  auto settings = asked.settings;
  if (!asked.name.empty()) settings["aggregator.policy"] = asked.name;
  for (const auto& [key, value] : settings) {
    if (!is_policy_key(key))
      return invalid(fmt::format("'{}' is no key of the policy; these are: {}", within_line(key),
                                 fmt::join(policy_key_names(), ", ")));
    std::erase_if(source.overrides,
                  [&key = key](const config::Override& one) { return one.key == key; });
    source.overrides.push_back({key, value});
  }
  auto version = configuration.parse(source);
  if (!version) {
    std::vector<std::string> texts;
    // The administrator's settings are in no line of the file.
    for (const config::ConfigError& error : version.error())
      texts.push_back(error.line == 0 ? error.text : error.to_string());
    return invalid(joined(texts));
  }
  // A value that the text has anyway is no override.
  const auto plain = configuration.parse({.text = source.text});
  if (!plain) return invalid(text_of(plain.error()));
  version->source.overrides.clear();
  for (const config::Change& change : config::changes(plain->config, version->config))
    version->source.overrides.push_back({change.key, change.after});
  return std::move(*version);
}

/// The policy's keys, with their values in a configuration and in the file.
Json Reload::policy_keys(const config::Config& config) const {
  const Configuration& configuration = *config_.configuration;
  Json answer = {{"file", configuration.file()}, {"file_error", ""}, {"keys", Json::array()}};
  auto file = configuration.read();
  if (!file) {
    answer["file_error"] = text_of(file.error());
    file = configuration.parse({.text = configuration.running().source.text});
  }
  // To show a value takes one that could be changed.
  config::Config now = config;
  config::Config read = file ? file->config : config;
  for (const config::Key& key : config::keys())
    if (config::is_of_policy(key))
      answer["keys"].push_back({{"key", config::full_name(key)},
                                {"value", key.show({.config = &now})},
                                {"in_file", key.show({.config = &read})}});
  return answer;
}

/// Tokens, certificates, the log's file: how many tokens.
tl::expected<size_t, AdminError> Reload::read_rest(const std::string& who) {
  const bool has_credentials =
      connections_.tcp_listener() &&
      !(config_.control.token_file.empty() && config_.control.tls.certificate.empty());
  if (!has_credentials && !config_.reopen_log && !config_.configuration)
    return invalid(
        "this switch has neither a configuration file nor a token file (control.token_file) nor "
        "certificates (control.tls_certificate) nor a log of its own (log.file)");
  if (config_.reopen_log) {
    if (const auto reopened = config_.reopen_log(); !reopened)
      return invalid(reopened.error().text);
    logging::info("log opened again")("by", who);
  }
  if (!has_credentials) return 0;
  if (const auto loaded = credentials_.load(*connections_.tcp_listener()); !loaded)
    return invalid(loaded.error().text + "; all stays as it is");
  const size_t tokens = credentials_.tokens();
  logging::info("credentials read again")("tokens", tokens)("by", who);
  return tokens;
}

/// All of it, or, if something of it cannot be read, nothing. How many tokens there are.
tl::expected<size_t, AdminError> Reload::apply(Plan& plan, const std::string& who) {
  const ConductorConfig next = conductor_config(plan.version.config, config_.frame_ports);
  const config::ControlConfig before = config_.control;
  config_.control = next.control;
  // How many there may be was found out at the start.
  config_.control.max_connections = before.max_connections;
  tl::expected<size_t, AdminError> tokens = 0;
  if (const auto safe = check_listen(); !safe)
    tokens = invalid(safe.error().text + "; all stays as it is");
  else
    tokens = read_rest(who);
  if (!tokens) {
    config_.control = before;
    return tokens;
  }
  config_.static_pools = next.static_pools;
  config_.straggler = next.straggler;
  config_.jobs = next.jobs;
  config_.tenants = next.tenants;
  resources_.set_limits();
  Configuration& configuration = *config_.configuration;
  if (configuration.daemon.set_log_level)
    configuration.daemon.set_log_level(plan.version.config.log.level);
  configuration.set_running(std::move(plan.version));
  configuration.set_failure("");
  return tokens;
}

/// Refuses a configuration that would let anybody join from other hosts, unless that is meant.
Result<void> Reload::check_listen() const {
  return config_.control.listen.empty() ? Result<void>() : credentials_.check_listen();
}

void Reload::end_lost(const Plan& plan) {
  // Groups last: they end with their jobs.
  std::vector<std::pair<JobId, std::string>> lost;
  for (const Loss& loss : plan.losses) lost.emplace_back(loss.job->id, loss.why);
  for (const auto& [id, why] : lost)
    if (Job* job = jobs_.find(id))
      ending_.end(*job, INA_ERR_ABORTED,
                  fmt::format("an administrator gave the switch another configuration, with which "
                              "job '{}' cannot go on: {}",
                              job->name, why));
}

Json Reload::answer_of(const Plan& plan, bool check) const {
  Json changes = Json::array();
  for (const config::Change& change : plan.changes)
    changes.push_back({{"key", change.key},
                       {"before", change.before},
                       {"after", change.after},
                       {"in_place", change.in_place},
                       {"text", change.to_string()}});
  Json losses = Json::array();
  for (const Loss& loss : plan.losses)
    losses.push_back({{"name", loss.job->name}, {"owner", loss.job->owner()}, {"text", loss.why}});
  return {{"changes", std::move(changes)}, {"jobs_lost", std::move(losses)},
          {"restart", plan.restart()},     {"applied", !check},
          {"starts", state_.boots()},      {"tokens", 0}};
}

}  // namespace ina::switchd

// The files that a running switch reads again: its configuration, tokens, certificates, and its
// log's file. Some settings change in the running switch. For the others the switch starts again in
// its process, with its jobs (docs/administration.md, "Another configuration"). A change of policy
// takes the same path, without the file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "switchd/admin_answer.h"
#include "switchd/conductor_config.h"
#include "switchd/config/changes.h"
#include "switchd/connections.h"
#include "switchd/credentials.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/outlook.h"
#include "switchd/jobs/state_file.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

class Reload {
 public:
  /// All of them must outlive it. `config` takes over the keys that change in place.
  Reload(ConductorConfig& config, const StateFile& state, const JobTable& jobs,
         Resources& resources, JobEnding& ending, Connections& connections,
         Credentials& credentials)
      : config_(config),
        state_(state),
        jobs_(jobs),
        resources_(resources),
        ending_(ending),
        connections_(connections),
        credentials_(credentials) {}

  /// A file that cannot be read changes nothing. `who`: asks, for the log.
  AdminAnswer carry_out(const control::request::Reload& asked, const std::string& who);

  /// The policy in force, and the file's.
  AdminAnswer policy() const;
  /// Another policy, by the same path.
  AdminAnswer set_policy(const control::request::SetPolicy& asked, const std::string& who);

  /// The switch is to start again with this configuration.
  bool wants_restart() const { return next_.has_value(); }
  const std::optional<Configuration::Version>& next() const { return next_; }

 private:
  /// The changes to make, and the losses that they would cause.
  struct Plan {
    Configuration::Version version;
    std::vector<config::Change> changes = {};
    std::vector<Loss> losses = {};
    bool restart() const;
  };
  using Read = tl::expected<Configuration::Version, std::vector<config::ConfigError>>;
  tl::expected<Plan, AdminError> make_plan(Read version) const;
  /// `command`: of inactl, that asks for it.
  AdminAnswer carry_out(Plan plan, const control::request::Reload& asked,
                        const std::string& command, const std::string& who);
  tl::expected<Configuration::Version, AdminError> with_policy(
      const control::request::SetPolicy& asked) const;
  control::Json policy_keys(const config::Config& config) const;
  tl::expected<size_t, AdminError> read_rest(const std::string& who);
  tl::expected<size_t, AdminError> apply(Plan& plan, const std::string& who);
  Result<void> check_listen() const;
  void end_lost(const Plan& plan);
  control::Json answer_of(const Plan& plan, bool check) const;

  ConductorConfig& config_;
  const StateFile& state_;
  const JobTable& jobs_;
  Resources& resources_;
  JobEnding& ending_;
  Connections& connections_;
  Credentials& credentials_;
  std::optional<Configuration::Version> next_;
};

}  // namespace ina::switchd

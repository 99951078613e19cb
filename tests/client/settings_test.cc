#include "client/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace ina::client {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<Settings> resolve_with(const Variables& variables, const ina_config* config = nullptr) {
  return resolve(config, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Settings, LaunchersArePickedUp) {
  for (const auto& [rank, world] :
       std::map<std::string, std::string>{{"RANK", "WORLD_SIZE"},
                                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                          {"PMI_RANK", "PMI_SIZE"},
                                          {"SLURM_PROCID", "SLURM_NTASKS"},
                                          {"JOB_COMPLETION_INDEX", "INA_WORLD_SIZE"},
                                          {"INA_RANK", "INA_WORLD_SIZE"}}) {
    const auto settings = resolve_with({{rank, "3"}, {world, "8"}});
    ASSERT_TRUE(settings) << settings.error().text;
    EXPECT_EQ(settings->rank, 3u);
    EXPECT_EQ(settings->world_size, 8u);
  }
}

TEST(Settings, OwnVariablesWinOverLaunchersAndFieldsOverBoth) {
  const Variables variables = {{"INA_RANK", "1"}, {"RANK", "2"}, {"WORLD_SIZE", "4"}};
  EXPECT_EQ(resolve_with(variables)->rank, 1u);
  ina_config config;
  ina_config_init(&config);
  config.rank = 0;
  EXPECT_EQ(resolve_with(variables, &config)->rank, 0u);
}

/// The variables that `torchrun` without --rdzv-id gives its workers.
Variables torchrun(const std::string& rank, const std::string& port) {
  return {{"RANK", rank},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", rank},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "0"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", port},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_RUN_ID", "none"}};
}

TEST(Settings, RunsOfTorchrunWithoutAnIdAreJobsOfTheirOwn) {
  const auto settings = resolve_with(torchrun("1", "29500"));
  ASSERT_TRUE(settings) << settings.error().text;
  EXPECT_EQ(settings->rank, 1u);
  EXPECT_EQ(settings->world_size, 2u);
  EXPECT_EQ(settings->job, resolve_with(torchrun("0", "29500"))->job) << "ranks of one run";
  EXPECT_NE(settings->job, resolve_with(torchrun("1", "29501"))->job) << "another run";
  EXPECT_THAT(settings->job, testing::Not(HasSubstr("127.0.0.1"))) << "every host's address";
  Variables again = torchrun("1", "29500");
  again["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(settings->job, resolve_with(again)->job) << "the workers of a restart";
  Variables named = torchrun("1", "29500");
  named["TORCHELASTIC_RUN_ID"] = "mnist";
  EXPECT_EQ(resolve_with(named)->job, "mnist");
  named["INA_JOB"] = "mine";
  EXPECT_EQ(resolve_with(named)->job, "mine");
}

TEST(Settings, AgentsOfTorchrunOnSeveralHostsAgreeAboutTheJob) {
  Variables first = torchrun("0", "29500"), second = torchrun("1", "29500");
  for (Variables* host : {&first, &second}) {
    (*host)["LOCAL_WORLD_SIZE"] = "1";
    (*host)["MASTER_ADDR"] = "node1";
  }
  second["TORCHELASTIC_RESTART_COUNT"] = "3";  // each agent has its own count
  EXPECT_EQ(resolve_with(first)->job, "torchrun-node1:29500");
  EXPECT_EQ(resolve_with(second)->job, "torchrun-node1:29500");
}

TEST(Settings, TheInnermostLauncherOfAnAllocationCounts) {
  Variables slurm = {{"SLURM_PROCID", "0"},
                     {"SLURM_NTASKS", "1"},
                     {"SLURM_JOB_ID", "4711"},
                     {"SLURM_STEP_ID", "2"}};
  EXPECT_EQ(resolve_with(slurm)->job, "4711.2") << "srun";
  Variables mpich = slurm;  // mpirun.mpich starts its proxies by srun
  mpich.insert({{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"PMI_FD", "8"}, {"MPI_LOCALNRANKS", "8"}});
  EXPECT_EQ(resolve_with(mpich)->rank, 3u);
  EXPECT_EQ(resolve_with(mpich)->world_size, 8u);
  Variables openmpi = slurm;
  openmpi.insert({{"OMPI_COMM_WORLD_RANK", "5"},
                  {"OMPI_COMM_WORLD_SIZE", "8"},
                  {"PMIX_NAMESPACE", "prterun-node1-1234@1"}});
  EXPECT_EQ(resolve_with(openmpi)->rank, 5u);
  EXPECT_EQ(resolve_with(openmpi)->job, "prterun-node1-1234@1");
}

TEST(Settings, IndexedJobsOfKubernetesNeedTheirSizeOnly) {
  Variables pod = {{"JOB_COMPLETION_INDEX", "11"}, {"HOSTNAME", "mnist-7-11"}};
  const auto without_size = resolve_with(pod);
  ASSERT_FALSE(without_size);
  EXPECT_THAT(without_size.error().text, HasSubstr("INA_WORLD_SIZE"));
  pod["INA_WORLD_SIZE"] = "12";
  EXPECT_EQ(resolve_with(pod)->rank, 11u);
  EXPECT_EQ(resolve_with(pod)->job, "mnist-7");
  pod["RANK"] = "3";  // torchrun in a pod
  EXPECT_EQ(resolve_with(pod)->rank, 3u);
  for (const char* host : {"mnist-7-1", "11", "-11", "node4"}) {
    pod["HOSTNAME"] = host;
    EXPECT_EQ(resolve_with(pod)->job, "default") << host;
  }
  pod.erase("JOB_COMPLETION_INDEX");
  pod["HOSTNAME"] = "mnist-7-11";
  EXPECT_EQ(resolve_with(pod)->job, "default") << "no pod of an indexed job";
}

TEST(Settings, Defaults) {
  const auto settings = resolve_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(settings->url, "shm:/run/ina/switch.sock");
  EXPECT_EQ(settings->job, "default");
  EXPECT_EQ(settings->timeout_ns, 30'000'000'000);
  EXPECT_EQ(settings->rejoin_timeout_ns, 30'000'000'000);
  EXPECT_EQ(settings->idle, IdleMode::kAuto);
}

TEST(Settings, AnOlderCallersConfigIsNotOverrun) {
  ina_config config;
  std::memset(&config, 0x5a, sizeof config);
  constexpr size_t kOlder = offsetof(ina_config, rejoin_timeout_us);
  ina_config_init_sized(&config, kOlder);
  EXPECT_EQ(config.struct_size, kOlder);
  EXPECT_EQ(config.rank, -1);
  EXPECT_EQ(config.rejoin_timeout_us, 0x5a5a5a5a5a5a5a5a);
  config.rank = 0;
  config.world_size = 1;
  EXPECT_EQ(resolve_with({}, &config)->rejoin_timeout_ns, 30'000'000'000);
}

TEST(Settings, RejoinTimeoutIsTheFieldOrTheVariable) {
  const Variables variables = {
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"INA_REJOIN_TIMEOUT_US", "250"}};
  EXPECT_EQ(resolve_with(variables)->rejoin_timeout_ns, 250'000);
  ina_config config;
  ina_config_init(&config);
  config.rejoin_timeout_us = 7;
  EXPECT_EQ(resolve_with(variables, &config)->rejoin_timeout_ns, 7'000);
  config.rejoin_timeout_us = -1;
  EXPECT_THAT(resolve_with(variables, &config).error().text,
              HasSubstr("ina_config.rejoin_timeout_us: -1 is not in 1.."));
}

TEST(Settings, CoalescingIsOffUnlessTheFieldOrTheVariableSaysHowMuch) {
  Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(resolve_with(variables)->coalesce_bytes, 0u);
  variables["INA_COALESCE_BYTES"] = "65536";
  EXPECT_EQ(resolve_with(variables)->coalesce_bytes, 65'536u);
  ina_config config;
  ina_config_init(&config);
  config.coalesce_bytes = 4096;
  EXPECT_EQ(resolve_with(variables, &config)->coalesce_bytes, 4096u);
  config.coalesce_bytes = (64 << 20) + 1;
  EXPECT_THAT(resolve_with(variables, &config).error().text,
              HasSubstr("ina_config.coalesce_bytes: 67108865 is not in 0..67108864"));
}

TEST(Settings, WhatIsWrongIsNamed) {
  const auto text = [](const Variables& variables) {
    const auto settings = resolve_with(variables);
    return settings ? std::string("no error") : settings.error().text;
  };
  EXPECT_THAT(text({}), HasSubstr("INA_WORLD_SIZE, WORLD_SIZE, OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(text({{"WORLD_SIZE", "4"}}), HasSubstr("ina_config.rank is not set"));
  EXPECT_THAT(text({{"WORLD_SIZE", "4x"}}),
              HasSubstr("WORLD_SIZE='4x' is not a number in 1..4096"));
  EXPECT_THAT(text({{"WORLD_SIZE", "4"}, {"RANK", "4"}}),
              HasSubstr("RANK='4' is not a number in 0..3"));
  EXPECT_THAT(text({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"INA_IDLE", "lazy"}}),
              HasSubstr("INA_IDLE='lazy'"));
  EXPECT_THAT(text({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"INA_NUMERIC", "exact"}}),
              HasSubstr("INA_NUMERIC='exact'"));
}

TEST(Settings, NumericModeComesFromTheFieldElseTheVariable) {
  Variables variables = {{"WORLD_SIZE", "1"}, {"RANK", "0"}};
  ina_config config;
  ina_config_init(&config);
  EXPECT_FALSE(resolve_with(variables, &config)->reproducible);
  variables["INA_NUMERIC"] = "reproducible";
  EXPECT_TRUE(resolve_with(variables, &config)->reproducible);
  config.numeric = INA_NUMERIC_NATIVE;
  EXPECT_FALSE(resolve_with(variables, &config)->reproducible);
  variables["INA_NUMERIC"] = "native";
  config.numeric = INA_NUMERIC_REPRODUCIBLE;
  EXPECT_TRUE(resolve_with(variables, &config)->reproducible);
  config.numeric = static_cast<ina_numeric>(3);
  EXPECT_FALSE(resolve_with(variables, &config));
}

TEST(Settings, TheTokenIsThatOfTheEnvironment) {
  Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(resolve_with(variables)->token, "");
  variables["INA_TOKEN_FILE"] = "/no/such/token";
  EXPECT_THAT(resolve_with(variables).error().text, HasSubstr("/no/such/token (INA_TOKEN_FILE)"));
  variables["INA_TOKEN"] = "a-token";
  EXPECT_EQ(resolve_with(variables)->token, "a-token");
}

TEST(Settings, TheTicketIsThatOfTheEnvironment) {
  Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(resolve_with(variables)->ticket, "");
  variables["INA_TICKET_FILE"] = "/no/such/ticket";
  EXPECT_THAT(resolve_with(variables).error().text, HasSubstr("/no/such/ticket (INA_TICKET_FILE)"));
  variables["INA_TICKET"] = "a-ticket";
  EXPECT_EQ(resolve_with(variables)->ticket, "a-ticket");
}

TEST(Settings, ShorterStructOfAnOlderCallerKeepsDefaults) {
  ina_config config;
  ina_config_init(&config);
  config.rank = 0;
  config.world_size = 2;
  config.timeout_us = 1;
  config.struct_size = offsetof(ina_config, timeout_us);
  EXPECT_EQ(resolve_with({}, &config)->timeout_ns, 30'000'000'000);
  // Built before rejoin_timeout_us: memory behind its struct is not ours.
  config.rejoin_timeout_us = 1;
  config.struct_size = offsetof(ina_config, rejoin_timeout_us);
  EXPECT_EQ(resolve_with({}, &config)->timeout_ns, 1'000);
  EXPECT_EQ(resolve_with({}, &config)->rejoin_timeout_ns, 30'000'000'000);
  config.struct_size = sizeof(ina_config);
  EXPECT_EQ(resolve_with({}, &config)->rejoin_timeout_ns, 1'000);
  config.struct_size = sizeof(ina_config) + 8;
  EXPECT_FALSE(resolve_with({}, &config));
}

}  // namespace
}  // namespace ina::client

// Statuses of a switch with a job, and what `inactl why` finds in them, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "control/diagnosis/why.h"

namespace ina::diagnosis {

using Json = nlohmann::json;

inline constexpr double kInterval = 0.08;

/// A switch with one job of four ranks, policy esa, which runs well: look `i` of kLooks.
inline Json healthy(size_t i) {
  Json status = Json::parse(R"({
    "draining": false,
    "ports": [{"name": "rack1", "drops": {"crc": 7}}],
    "lcores": [{"lcore": 0}],
    "aggregator": {"policy": "esa", "slots": 512, "slots_used": 100, "drops": {}},
    "tenants": [{"name": "vision", "jobs": 1, "workers": 4, "slots_ceiling": 512,
                 "memory_bytes": 1000, "quota": {"slots_ceiling": 0, "jobs_max": 0}}],
    "jobs": [{"name": "train", "owner": "vision", "tenant": "vision", "id": 3, "world_size": 4,
              "joined": [0, 1, 2, 3], "missing": [], "state": "running", "window": 512,
              "slots_floor": 0, "slots_ceiling": 512, "slots_held_peak": 120, "priority_max": 255,
              "preempted": 0}]})");
  status["uptime_s"] = 100 + kInterval * static_cast<double>(i);
  status["lcores"][0]["busy_s"] = 50 + kInterval / 2 * static_cast<double>(i);
  Json& job = status["jobs"][0];
  job["results"] = 1000 + 100 * i;
  job["absorbed"] = 4000 + 400 * i;
  job["bypassed"] = 0u;
  job["slots_held"] = 50u;
  job["waiting_for"] = {i % 4};
  job["waiting_for_peers"] = {"pid " + std::to_string(100 + i % 4)};
  job["oldest_fragment"] = 900 + 100 * i;
  job["oldest_operation"] = "allreduce sum float32";
  return status;
}

/// `change`: of each look's job and status.
using Change = std::function<void(size_t i, Json& job, Json& status)>;

inline std::vector<Json> looks(const Change& change, size_t count = kLooks) {
  std::vector<Json> found;
  for (size_t i = 0; i < count; ++i) {
    Json status = healthy(i);
    Json& job = status["jobs"][0];
    change(i, job, status);
    found.push_back(Json::parse(status.dump()));  // as it comes from the switch
  }
  return found;
}

/// Nothing is completed, and nothing comes in.
inline void stand_still(Json& job) {
  const Json first = healthy(0)["jobs"][0];
  for (const char* key : {"results", "absorbed", "oldest_fragment"}) job[key] = first[key];
}

/// A group of ranks 1 and 3 of `job`, whose rank 1 is waited for.
inline void add_waiting_group(const Json& job, Json& status) {
  Json group = job;
  group.update({{"name", "train/5"},
                {"id", 5u},
                {"group_of", 3u},
                {"world_size", 2u},
                {"joined", {0u, 1u}},
                {"root_ranks", {1u, 3u}},
                {"waiting_for", {1u}}});
  status["jobs"].push_back(group);
}

inline JobVerdict verdict_of(const Change& change, size_t count = kLooks) {
  const auto found = why(looks(change, count), "train");
  if (!found || found->jobs.empty()) {
    ADD_FAILURE() << (found ? "no job" : found.error().text);
    return {};
  }
  return found->jobs.front();
}

}  // namespace ina::diagnosis

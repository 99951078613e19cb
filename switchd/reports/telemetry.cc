#include "switchd/reports/telemetry.h"

#include <rte_mempool.h>
#include <rte_telemetry.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <string_view>

namespace ina::switchd {

namespace {

using Json = nlohmann::json;

constexpr Nanos kAnswerNs = 2'000'000'000;

// DPDK's commands cannot be unregistered and carry no pointer.
std::mutex mutex;
admin::Queue* asked = nullptr;  ///< under `mutex`; nullptr: nobody answers

/// Null: nobody answered.
Json ask() {
  const std::lock_guard lock(mutex);
  if (!asked) return nullptr;
  auto answer = asked->ask(admin::Question::kCounters, kAnswerNs);
  return answer ? std::move(*answer) : Json();
}

void add(rte_tel_data* dict, const std::string& key, const Json& value) {
  if (value.is_number_integer()) {
    rte_tel_data_add_dict_u64(dict, key.c_str(), value.get<uint64_t>());
  } else if (value.is_boolean()) {
    rte_tel_data_add_dict_u64(dict, key.c_str(), value.get<bool>() ? 1 : 0);
  } else if (value.is_number()) {
    rte_tel_data_add_dict_string(dict, key.c_str(), value.dump().c_str());
  } else if (value.is_string()) {
    // DPDK escapes what JSON wants escaped, but takes any bytes for UTF-8.
    const std::string valid = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    rte_tel_data_add_dict_string(dict, key.c_str(), Json::parse(valid).get<std::string>().c_str());
  } else if (value.is_array()) {
    rte_tel_data* const list = rte_tel_data_alloc();
    if (!list) return;
    rte_tel_data_start_array(list, RTE_TEL_U64_VAL);
    for (const Json& item : value)
      if (item.is_number_integer()) rte_tel_data_add_array_u64(list, item.get<uint64_t>());
    rte_tel_data_add_dict_container(dict, key.c_str(), list, 0);
  } else if (value.is_object()) {
    rte_tel_data* const inner = rte_tel_data_alloc();
    if (!inner) return;
    rte_tel_data_start_dict(inner);
    for (const auto& [inner_key, item] : value.items())
      if (!item.is_structured()) add(inner, inner_key, item);
    rte_tel_data_add_dict_container(dict, key.c_str(), inner, 0);
  }
}

int on_info(const char*, const char*, rte_tel_data* answer) {
  const Json status = ask();
  if (!status.is_object()) return -EAGAIN;
  rte_tel_data_start_dict(answer);
  for (const char* key : {"version", "boots", "draining", "uptime_s"})
    add(answer, key, status.at(key));
  rte_tel_data_add_dict_u64(answer, "jobs", status.at("jobs").size());
  add(answer, "aggregator", status.at("aggregator"));
  return 0;
}

int on_job_list(const char*, const char*, rte_tel_data* answer) {
  const Json status = ask();
  if (!status.is_object()) return -EAGAIN;
  rte_tel_data_start_array(answer, RTE_TEL_U64_VAL);
  for (const Json& job : status.at("jobs"))
    rte_tel_data_add_array_u64(answer, job.at("id").get<uint64_t>());
  return 0;
}

int on_job_stats(const char*, const char* parameters, rte_tel_data* answer) {
  uint64_t id = 0;
  const std::string_view text = parameters ? parameters : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return -EINVAL;
  const Json status = ask();
  if (!status.is_object()) return -EAGAIN;
  for (const Json& job : status.at("jobs")) {
    if (job.at("id") != id) continue;
    rte_tel_data_start_dict(answer);
    for (const auto& [key, value] : job.items()) add(answer, key, value);
    return 0;
  }
  return -ENOENT;
}

/// Counts each pool's buffers that are not in it. The /mempool/info of DPDK 22.11 does not count
/// them. Lanes take and return some meanwhile.
int on_mbufs(const char*, const char*, rte_tel_data* answer) {
  rte_tel_data_start_dict(answer);
  const auto add_pool = [](rte_mempool* pool, void* dict) {
    rte_tel_data_add_dict_u64(static_cast<rte_tel_data*>(dict), pool->name,
                              rte_mempool_in_use_count(pool));
  };
  rte_mempool_walk(add_pool, answer);
  return 0;
}

/// DPDK is C.
template <int (*kAnswer)(const char*, const char*, rte_tel_data*)>
int guarded(const char* command, const char* parameters, rte_tel_data* answer) {
  try {
    return kAnswer(command, parameters, answer);
  } catch (const std::exception&) {
    return -ENOMEM;
  }
}

void register_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    rte_telemetry_register_cmd("/ina/info", guarded<on_info>,
                               "Returns version, state and counters of the switch. No parameters");
    rte_telemetry_register_cmd("/ina/job/list", guarded<on_job_list>,
                               "Returns the ids of jobs and groups. No parameters");
    rte_telemetry_register_cmd("/ina/job/stats", guarded<on_job_stats>,
                               "Returns what a job has and counted. Parameters: int job_id");
    rte_telemetry_register_cmd(
        "/ina/mbufs", guarded<on_mbufs>,
        "Returns the buffers in use of each Ethernet port's pools. No parameters");
  });
}

}  // namespace

Telemetry::Telemetry(admin::Queue& queue) {
  register_once();
  const std::lock_guard lock(mutex);
  asked = &queue;
}

Telemetry::~Telemetry() {
  const std::lock_guard lock(mutex);
  asked = nullptr;
}

}  // namespace ina::switchd

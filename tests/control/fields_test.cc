// The types of what a switch says.
#include "control/fields.h"

#include <gtest/gtest.h>

namespace ina::control {
namespace {

using Json = nlohmann::json;

const std::vector<Json>& samples() {
  static const std::vector<Json> list = {
      Json::parse(R"({"type": "refused", "status": -5, "text": "no", "retry": true})"),
      Json::parse(R"({"type": "joined", "library": "0.1.0", "job_id": 4294967295,
        "job_key": 18446744073709551615, "epoch": 1, "window": 2, "slot_bytes": 1024, "lanes": 1,
        "policy": "esa", "home": "workers", "instance": 0, "rto_min_us": 1, "rto_max_us": 2,
        "ecn": true, "aggregator_window": false, "priority_max": 255, "in_switch": 1, "park_room": 2,
        "shm": {"layout": 3, "tx_depth": 1, "rx_depth": 1, "result_rows": 1, "side_rows": 1},
        "address": {"mac": [1, 2, 3, 4, 5, 255], "ip": 4294967295, "udp_port": 65535},
        "group": {"mac": [1, 2, 3, 4, 5, 6], "ip": 1, "udp_port": 1},
        "tag": {"algorithm": "siphash", "key": [1, 18446744073709551615], "payload_key": [3, 4]}})"),
      Json::parse(R"({"type": "waiting", "missing": [0, 63], "fallback_missing": false})"),
      Json::parse(R"({"type": "waiting", "missing": []})"),
      Json::parse(R"({"type": "ready", "buffers_shared": 7})"),
      Json::parse(R"({"type": "registered", "number": 1, "status": 0, "text": ""})"),
      Json::parse(
          R"({"type": "results", "status": 0, "text": "", "first_unit": null, "bytes": 4096})"),
      Json::parse(R"({"type": "epoch", "epoch": 5})"),
      Json::parse(R"({"type": "job", "job_id": 5, "job": "x"})"),
      Json::parse(
          R"({"type": "joined", "job": "x", "workers": 2, "start": 5, "bind_at_once": true})"),
      Json::parse(R"({"type": "status", "status": {"jobs": []}})"),
      Json::parse(R"({"type": "left", "unknown": {"of": ["any", 1.5]}})")};
  return list;
}

TEST(Fields, WhatSwitchesSayIsRight) {
  for (const Json& message : samples()) EXPECT_EQ(problem_of_answer(message), "") << message;
}

TEST(Fields, OfAnyOtherTypeAreNamed) {
  const std::vector<Json> others = {
      -7,        1.5,      1e300, true,         "text",
      nullptr,   {1, "x"}, {-1},  {{"mac", 5}}, Json::array({1, 2, 3}),
      UINT64_MAX};
  for (const Json& sample : samples())
    for (const auto& [field, value] : sample.items()) {
      if (field == "unknown") continue;
      int found = 0;
      for (const Json& other : others) {
        Json message = sample;
        message[field] = other;
        const std::string problem = problem_of_answer(message);
        if (problem.empty()) continue;
        ++found;
        EXPECT_NE(problem.find("'" + field + "' is not"), std::string::npos) << problem;
      }
      EXPECT_GE(found, static_cast<int>(others.size()) - 3) << field;
    }
}

TEST(Fields, InsideOfObjectsAreLookedAtToo) {
  for (const char* text :
       {R"({"type": "joined", "shm": {"layout": "3"}})",
        R"({"type": "joined", "shm": {"tx_depth": -1}})",
        R"({"type": "joined", "address": {"mac": [1, 2, 3, 4, 5, 256]}})",
        R"({"type": "joined", "address": {"mac": [1, 2, 3]}})",
        R"({"type": "joined", "address": {"udp_port": 65536}})",
        R"({"type": "joined", "tag": {"key": [1]}})",
        R"({"type": "joined", "tag": {"algorithm": 1}})", R"({"type": "refused", "status": 2})",
        R"({"type": "refused", "status": -1001})", R"({"type": "waiting", "missing": [1, "2"]})",
        R"({"type": "joined", "priority_max": 256})",
        R"({"type": "joined", "rto_max_us": 9223372036854775807})"})
    EXPECT_NE(problem_of_answer(Json::parse(text)), "") << text;
}

TEST(Fields, AMessageIsAnObjectWithAType) {
  for (const char* text : {"[]", "5", "null", "\"x\"", "{}", R"({"text": "x"})"})
    EXPECT_NE(problem_of_answer(Json::parse(text)), "") << text;
}

}  // namespace
}  // namespace ina::control

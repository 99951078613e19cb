#include "examples/demo/report.h"

#include <gtest/gtest.h>

namespace ina::demo {
namespace {

using Bytes = std::vector<std::byte>;

Outcome good_outcome() {
  Outcome outcome;
  outcome.epochs = {{1, 0.5, 0.90, 0.6, 0.91, 1000}, {2, 0.1, 0.98, 0.2, 0.97, 1000}};
  outcome.weights_equal = true;
  outcome.workers = 4;
  return outcome;
}

TEST(Report, BitwiseEqualLooksAtEveryByteOfEveryWorker) {
  const Bytes same(1000, std::byte{7});
  EXPECT_TRUE(bitwise_equal(std::vector{same, same, same}));
  EXPECT_FALSE(bitwise_equal(std::vector<Bytes>{}));
  for (size_t worker = 0; worker < 3; ++worker)
    for (size_t at : {size_t{0}, same.size() - 1}) {
      std::vector all{same, same, same};
      all[worker][at] ^= std::byte{1};
      EXPECT_FALSE(bitwise_equal(all));
    }
  EXPECT_FALSE(bitwise_equal(std::vector{same, Bytes(999, std::byte{7})}));
}

TEST(Report, PassesOnlyWithEqualWeightsAndAccuracy) {
  Outcome outcome = good_outcome();
  EXPECT_TRUE(outcome.passed());
  outcome.weights_equal = false;
  EXPECT_FALSE(outcome.passed());
  outcome = good_outcome();
  outcome.epochs.back().accuracy = 0.9699;
  EXPECT_FALSE(outcome.passed());
}

TEST(Report, SwitchFiguresAddUpThePorts) {
  const auto status = nlohmann::json::parse(R"({
    "ports": [
      {"name": "a", "rx_packets": 1, "rx_bytes": 10, "tx_packets": 2, "tx_bytes": 20,
       "drops": {"crc": 3, "duplicate": 4}},
      {"name": "b", "rx_packets": 100, "rx_bytes": 1000, "tx_packets": 200, "tx_bytes": 2000,
       "drops": {}}],
    "aggregator": {"slots": 64, "slots_used": 1, "slots_used_peak": 32, "slot_bytes": 1024}})");
  const SwitchFigures figures = switch_figures(status);
  EXPECT_EQ(figures.rx_packets, 101u);
  EXPECT_EQ(figures.rx_bytes, 1010u);
  EXPECT_EQ(figures.tx_packets, 202u);
  EXPECT_EQ(figures.tx_bytes, 2020u);
  EXPECT_EQ(figures.drops, 7u);
  EXPECT_EQ(figures.slots, 64u);
  EXPECT_EQ(figures.peak_slots_used, 32u);
  EXPECT_THROW(switch_figures(nlohmann::json::object()), nlohmann::json::exception);
}

TEST(Report, JsonHasTheLastEpochAsTheResult) {
  const nlohmann::json json = to_json(good_outcome());
  EXPECT_EQ(json.at("heldout_accuracy"), 0.98);
  EXPECT_EQ(json.at("reference_heldout_accuracy"), 0.97);
  EXPECT_EQ(json.at("weights_equal"), true);
  EXPECT_EQ(json.at("workers"), 4);
  ASSERT_EQ(json.at("epochs").size(), 2u);
  EXPECT_EQ(json.at("epochs")[0].at("reference_loss"), 0.6);
  for (const char* key :
       {"rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "slots", "peak_slots_used"})
    EXPECT_TRUE(json.at("switch").contains(key)) << key;
}

}  // namespace
}  // namespace ina::demo

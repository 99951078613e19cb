// The figures of the Themis paper's six topologies, recomputed, within 3 %.
#include <cmath>

#include "plans/themis/text/topology_file.h"
#include "tests/plans/themis_fixture.h"

namespace ina::themis {
namespace {

constexpr double kTolerance = 0.03;
constexpr uint64_t kBytes = 1'000'000'000;

struct Golden {
  const char* file;
  double base_utilisation, fifo_utilisation, scf_utilisation, speedup;  ///< means over the sweep
  double base_us, scf_us;                                               ///< of kBytes
};

constexpr Golden kGolden[] = {
    {"2d-sw-sw", 0.64, 0.94, 0.99, 1.55, 12503, 8081},
    {"3d-sw-sw-sw-homo", 0.36, 0.87, 0.98, 2.77, 18753, 6769},
    {"3d-sw-sw-sw-hetero", 0.61, 0.94, 0.99, 1.62, 9378, 5781},
    {"3d-fc-ring-sw", 0.62, 0.85, 0.97, 1.57, 10001, 6529},
    {"4d-ring-sw-sw-sw", 0.56, 0.79, 0.97, 1.75, 6000, 3637},
    {"4d-ring-fc-ring-sw", 0.62, 0.86, 0.98, 1.56, 4000, 2645},
};

class ThemisGolden : public ::testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    const auto loaded = themis::load_topology_file(std::string(INA_CONF_DIR "/topologies/") +
                                                   GetParam().file + ".yaml");
    ASSERT_TRUE(loaded) << loaded.error().front().to_string();
    topology_ = *loaded;
  }

  Planned run(uint64_t bytes, const PlanOptions& options) const {
    return plan(topology_, {{.bytes = bytes}}, options);
  }

  Topology topology_;
};

void expect_near(double value, double golden, const char* what) {
  EXPECT_NEAR(value, golden, golden * kTolerance) << what;
}

const PlanOptions kBase{.scheduler = Scheduler::kBaseline};
const PlanOptions kFifo{.discipline = Discipline::kFifo, .or_baseline = false};
const PlanOptions kScf{.discipline = Discipline::kSmallestFirst, .or_baseline = false};

TEST_P(ThemisGolden, Times) {
  const auto us = [&](const PlanOptions& options) {
    return static_cast<double>(run(kBytes, options).timeline.end_ps) * 1e-6;
  };
  expect_near(us(kBase), GetParam().base_us, "baseline");
  expect_near(us(kScf), GetParam().scf_us, "SCF");
}

TEST_P(ThemisGolden, MeansOverTheSweep) {
  double base = 0, fifo = 0, scf = 0, speedup = 0, least = 2;
  int sizes = 0;
  for (uint64_t percent = 10; percent <= 95; percent += 5, ++sizes) {
    const uint64_t bytes = (uint64_t{1} << 30) * percent / 100;
    const Planned based = run(bytes, kBase), fifoed = run(bytes, kFifo), scfed = run(bytes, kScf);
    const auto ideal = static_cast<double>(ideal_ps(based.plan));
    base += ideal / static_cast<double>(based.timeline.end_ps);
    fifo += ideal / static_cast<double>(fifoed.timeline.end_ps);
    scf += ideal / static_cast<double>(scfed.timeline.end_ps);
    const auto base_ps = static_cast<double>(based.timeline.end_ps);
    speedup += base_ps / static_cast<double>(scfed.timeline.end_ps);
    least = std::min({least, base_ps / static_cast<double>(scfed.timeline.end_ps),
                      base_ps / static_cast<double>(fifoed.timeline.end_ps)});
  }
  ASSERT_EQ(sizes, 18);
  expect_near(base / sizes, GetParam().base_utilisation, "utilisation of the baseline");
  expect_near(fifo / sizes, GetParam().fifo_utilisation, "utilisation of FIFO");
  expect_near(scf / sizes, GetParam().scf_utilisation, "utilisation of SCF");
  expect_near(speedup / sizes, GetParam().speedup, "speed-up");
  EXPECT_GE(least, 1.0);
}

/// With switches that aggregate, against the same network without.
TEST_P(ThemisGolden, AggregatingSwitchesAreNeverWorse) {
  const Topology with_ina = with_aggregating_switches(topology_);
  for (uint64_t percent = 10; percent <= 95; percent += 17) {
    const uint64_t bytes = (uint64_t{1} << 30) * percent / 100;
    EXPECT_LE(plan(with_ina, {{.bytes = bytes}}).timeline.end_ps, run(bytes, kScf).timeline.end_ps);
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, ThemisGolden, ::testing::ValuesIn(kGolden),
                         [](const auto& test) {
                           std::string name = test.param.file;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace ina::themis

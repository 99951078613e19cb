// Configuration files of any content: they load, or every error has a place and a text.
#include <string_view>

#include "switchd/config/config.h"
#include "tests/fuzz/check.h"

namespace {

using namespace ina::config;

void check_errors(const std::vector<ConfigError>& errors) {
  INA_FUZZ_CHECK(!errors.empty());
  for (const ConfigError& error : errors) {
    INA_FUZZ_CHECK(error.file == "fuzz.yaml" && !error.text.empty());
    INA_FUZZ_CHECK(error.line >= 0 && error.column >= 0);
    INA_FUZZ_CHECK(error.to_string().starts_with("fuzz.yaml"));
  }
}

/// Checks the limits that the rest of the switch relies on.
void check_config(const Config& config) {
  INA_FUZZ_CHECK(config.aggregator.slots > 0 && config.aggregator.slot_bytes > 0);
  INA_FUZZ_CHECK(config.switchd.lcores > 0 && config.switchd.burst > 0);
  INA_FUZZ_CHECK(config.switchd.max_jobs > 0 && config.control.max_connections > 0);
  INA_FUZZ_CHECK(!config.control.socket.empty() && config.control.join_timeout_ns > 0);
  for (const PortConfig& port : config.ports) INA_FUZZ_CHECK(!port.name.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = load_config(text, "fuzz.yaml");
  if (!config) {
    check_errors(config.error());
    return 0;
  }
  check_config(*config);
  const auto again = load_config(text, "fuzz.yaml");
  INA_FUZZ_CHECK(again && *again == *config);
  static const bool sample_is_default = [] {
    const auto sample = load_config(sample_config(), "sample.yaml");
    return sample && *sample == Config{};
  }();
  INA_FUZZ_CHECK(sample_is_default);
  return 0;
}

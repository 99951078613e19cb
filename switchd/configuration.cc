#include "switchd/configuration.h"

#include <nlohmann/json.hpp>

namespace ina::switchd {

nlohmann::json overrides_json(const Source& source) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [key, value] : source.overrides) json[key] = value;
  return json;
}

tl::expected<Configuration::Version, std::vector<config::ConfigError>> Configuration::read() const {
  if (file_.empty()) return parse(Source());
  auto text = yaml::read_file(file_);
  if (!text) return tl::unexpected(text.error());
  return parse({.text = std::move(*text)});
}

tl::expected<Configuration::Version, std::vector<config::ConfigError>> Configuration::parse(
    Source source) const {
  auto config =
      config::load_config(source.text, file_.empty() ? "defaults" : file_, source.overrides);
  if (!config) return tl::unexpected(config.error());
  if (!socket_.empty()) config->control.socket = socket_;
  return Version{std::move(*config), std::move(source)};
}

}  // namespace ina::switchd

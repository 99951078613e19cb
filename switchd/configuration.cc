#include "switchd/configuration.h"

namespace ina::switchd {

tl::expected<Configuration::Version, std::vector<config::ConfigError>> Configuration::read() const {
  if (file_.empty()) return parse("");
  auto text = config::read_config_file(file_);
  if (!text) return tl::unexpected(text.error());
  return parse(std::move(*text));
}

tl::expected<Configuration::Version, std::vector<config::ConfigError>> Configuration::parse(
    std::string text) const {
  auto config = config::load_config(text, file_.empty() ? "defaults" : file_);
  if (!config) return tl::unexpected(config.error());
  if (!socket_.empty()) config->control.socket = socket_;
  return Version{std::move(*config), std::move(text)};
}

}  // namespace ina::switchd

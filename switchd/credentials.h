// The credentials of workers on other hosts, and the owners that follow from them.
#pragma once

#include <optional>
#include <string>

#include "control/socket.h"
#include "control/tokens.h"
#include "switchd/config/config.h"

namespace ina::switchd {

class Credentials {
 public:
  /// `config` must outlive it.
  explicit Credentials(const config::ControlConfig& config) : config_(config) {}

  /// INA_ERR_INVALID if anybody could come in over TCP without credentials, and it is not meant.
  Result<void> check_listen() const;
  /// Reads the files of tokens and certificates, also again. `listener`: has connections encrypted
  /// by the certificates from now on. On failure all stays as it is.
  Result<void> load(control::Listener& listener);
  size_t tokens() const { return tokens_ ? tokens_->size() : 0; }

  /// The tenant of a worker whose certificate has this common name, or, without one, that shows
  /// this token (empty: none). INA_ERR_REFUSED: nobody's.
  Result<std::string> tenant_of(const std::optional<std::string>& common_name,
                                const std::string& token) const;

 private:
  const config::ControlConfig& config_;
  std::optional<control::TokenTable> tokens_;
};

}  // namespace ina::switchd

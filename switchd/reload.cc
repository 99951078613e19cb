#include "switchd/reload.h"

#include "common/logging/record.h"

namespace ina::switchd {

namespace {

using control::Json;

tl::unexpected<admin::Error> invalid(std::string text) {
  return tl::unexpected(admin::Error{admin::Error::Code::kInvalid, std::move(text)});
}

}  // namespace

admin::Answer Reload::carry_out(const std::string& who) {
  const bool has_credentials =
      connections_.tcp_listener() &&
      !(config_.control.token_file.empty() && config_.control.tls.certificate.empty());
  if (!has_credentials && !config_.reopen_log)
    return invalid(
        "this switch has neither a token file (control.token_file) nor certificates "
        "(control.tls_certificate) nor a log of its own (log.file)");
  if (config_.reopen_log) {
    if (const auto reopened = config_.reopen_log(); !reopened)
      return invalid(reopened.error().text);
    logging::info("log opened again")("by", who);
  }
  if (!has_credentials) return Json{{"tokens", 0}};
  if (const auto loaded = credentials_.load(*connections_.tcp_listener()); !loaded)
    return invalid(loaded.error().text + "; all stays as it is");
  const size_t tokens = credentials_.tokens();
  logging::info("credentials read again")("tokens", tokens)("by", who);
  return Json{{"tokens", tokens}};
}

}  // namespace ina::switchd

#include "switchd/credentials.h"

#include "control/tls_server.h"

namespace ina::switchd {

namespace {

Result<std::string> certified_tenant(const std::string& common_name) {
  std::string problem = control::tenant_problem(common_name);
  if (common_name == control::kAnonymousTenant)
    problem = "the tenant 'anonymous' is that of workers who show nothing";
  if (problem.empty()) return common_name;
  return fail(INA_ERR_REFUSED, "the certificate's common name is no tenant: " + problem);
}

}  // namespace

Result<void> Credentials::check_listen() const {
  if (config_.listen.empty()) return {};
  const bool certificates = !config_.tls.certificate.empty() && config_.require_client_certificate;
  if (!config_.token_file.empty() || certificates || config_.allow_anonymous) return {};
  return fail(INA_ERR_INVALID,
              "control.listen would let anybody in who reaches " + config_.listen +
                  ": set control.token_file, or control.allow_anonymous: true if that is meant");
}

Result<void> Credentials::load(control::Listener& listener) {
  std::optional<control::TokenTable> tokens;
  if (!config_.token_file.empty()) {
    auto loaded = control::TokenTable::load(config_.token_file);
    if (!loaded) return tl::unexpected(loaded.error());
    tokens.emplace(std::move(*loaded));
  }
  if (!config_.tls.certificate.empty()) {
    auto tls = control::load_tls_acceptor(config_.tls, config_.require_client_certificate);
    if (!tls) return tl::unexpected(tls.error());
    listener.set_tls(std::move(*tls));
  }
  tokens_ = std::move(tokens);
  return {};
}

Result<std::string> Credentials::tenant_of(const std::optional<std::string>& common_name,
                                           const std::string& token) const {
  if (common_name) return certified_tenant(*common_name);
  if (tokens_ && !token.empty())
    if (auto tenant = tokens_->tenant_of(token)) return *tenant;
  if (config_.allow_anonymous && (token.empty() || !tokens_))
    return std::string(control::kAnonymousTenant);
  if (token.empty())
    return fail(INA_ERR_REFUSED,
                "the token is missing: over TCP this switch lets nobody in without one (INA_TOKEN "
                "or INA_TOKEN_FILE)");
  return fail(INA_ERR_REFUSED,
              "the token is unknown: it is not in the switch's control.token_file");
}

}  // namespace ina::switchd

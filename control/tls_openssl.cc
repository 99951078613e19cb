// TLS 1.3 by OpenSSL, over sockets that never block and never raise SIGPIPE.
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "control/tls_server.h"

namespace ina::control {

namespace {

// Limit of the other side's certificates, before its identity is known.
constexpr long kMaxChainBytes = 32 * 1024;

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Context = std::unique_ptr<SSL_CTX, Free>;

// ---- the socket as OpenSSL sees it

/// The descriptor that a session reads from and writes to.
struct Wire {
  int fd = -1;
  std::string before;  ///< read already, to be given to OpenSSL first
};

int wire_read(BIO* bio, char* data, int bytes) {
  auto* wire = static_cast<Wire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (!wire->before.empty()) {
    const size_t part = std::min(wire->before.size(), static_cast<size_t>(bytes));
    std::memcpy(data, wire->before.data(), part);
    wire->before.erase(0, part);
    return static_cast<int>(part);
  }
  const ssize_t got = ::recv(wire->fd, data, static_cast<size_t>(bytes), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int wire_write(BIO* bio, const char* data, int bytes) {
  auto* wire = static_cast<Wire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  // OpenSSL's own would use write(), and a peer that is gone would end the process by a signal.
  const ssize_t sent =
      ::send(wire->fd, data, static_cast<size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long wire_control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* wire_method() {
  static const BIO_METHOD* method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "ina control");
    BIO_meth_set_read(made, wire_read);
    BIO_meth_set_write(made, wire_write);
    BIO_meth_set_ctrl(made, wire_control);
    return made;
  }();
  return method;
}

// ---- what went wrong, in words

/// Reasons of OpenSSL that are alerts of the other side.
constexpr int kAlert = SSL_AD_REASON_OFFSET;

bool is_about_certificates(int reason) {
  switch (reason - kAlert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
      return true;
    default:
      return false;
  }
}

/// Before the handshake, data that is no TLS fails in one of these ways.
bool is_no_tls(int reason) {
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
         reason == SSL_R_HTTP_REQUEST || reason == SSL_R_UNEXPECTED_MESSAGE ||
         reason == SSL_R_BAD_RECORD_TYPE || reason == SSL_R_INVALID_ALERT;
}

std::string reason_text(unsigned long error) {
  const char* text = ERR_reason_error_string(error);
  return text ? text : "error " + std::to_string(ERR_GET_REASON(error));
}

std::string verify_text(SSL* ssl) {
  return X509_verify_cert_error_string(SSL_get_verify_result(ssl));
}

/// `name`: that the switch's certificate must have.
std::string worker_text(SSL* ssl, unsigned long error, const std::string& name) {
  const int reason = ERR_GET_REASON(error);
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    const long verified = SSL_get_verify_result(ssl);
    const bool misnamed =
        verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH;
    std::string text = "the switch's certificate is not accepted: " + verify_text(ssl);
    if (misnamed) return text + "; it must be for " + name;
    if (verified == X509_V_ERR_CERT_HAS_EXPIRED || verified == X509_V_ERR_CERT_NOT_YET_VALID)
      return text;
    return text + "; is INA_TLS_CA the authority that signed it?";
  }
  if (reason == kAlert + SSL_AD_CERTIFICATE_REQUIRED ||
      (reason == kAlert + SSL_AD_HANDSHAKE_FAILURE && !SSL_get_certificate(ssl)))
    return "the switch asks for a certificate: set INA_TLS_CERT and INA_TLS_KEY";
  if (is_about_certificates(reason))
    return "the switch does not accept the certificate of INA_TLS_CERT: " + reason_text(error) +
           "; it must be signed by the switch's control.tls_client_ca or, for administrators, its "
           "admin.client_ca";
  if (is_no_tls(reason)) return "there is no TLS: is it tcp: instead of tls:?";
  return reason_text(error);
}

std::string switch_text(SSL* ssl, unsigned long error) {
  const int reason = ERR_GET_REASON(error);
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
    return "its certificate is not accepted: " + verify_text(ssl);
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return "it has shown no certificate";
  if (is_about_certificates(reason))
    return "it does not accept this switch's certificate: " + reason_text(error);
  return reason_text(error);
}

// ---- sessions

class Session final : public TlsSession {
 public:
  /// `name`: of the other side, for a worker.
  Session(SSL_CTX* context, bool is_switch, std::string name = "")
      : ssl_(SSL_new(context)), is_switch_(is_switch), name_(std::move(name)) {
    BIO* bio = BIO_new(wire_method());
    BIO_set_data(bio, &wire_);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    if (is_switch)
      SSL_set_accept_state(ssl_.get());
    else
      SSL_set_connect_state(ssl_.get());
  }
  /// Has a worker check the switch's name. False: the name cannot be checked.
  bool expect_name() {
    SSL* ssl = ssl_.get();
    // An address must stand in the certificate as an address, a name as a name.
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name_.c_str()) == 1) return true;
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(ssl, name_.c_str()) == 1 &&
           SSL_set_tlsext_host_name(ssl, name_.c_str()) == 1;
  }

  Outcome handshake(int fd) override {
    return run(fd, [&](size_t&) { return SSL_do_handshake(ssl_.get()); }).outcome;
  }
  Moved read(int fd, char* data, size_t bytes) override {
    return run(fd, [&](size_t& done) { return SSL_read_ex(ssl_.get(), data, bytes, &done); });
  }
  Moved write(int fd, const char* data, size_t bytes) override {
    const Moved moved =
        run(fd, [&](size_t& done) { return SSL_write_ex(ssl_.get(), data, bytes, &done); });
    // Why it was hung up on may lie unread in the socket: an alert.
    char nothing;
    if (moved.outcome == Outcome::kClosed && !is_switch_ &&
        read(fd, &nothing, 1).outcome == Outcome::kFailed)
      return {Outcome::kFailed};
    return moved;
  }
  bool buffered() const override {
    const std::lock_guard lock(mutex_);
    return SSL_has_pending(ssl_.get()) != 0;
  }
  std::string error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  bool met_plain_text() const override { return met_plain_text_; }
  std::optional<std::string> peer_name() const override;

 private:
  template <class Call>
  Moved run(int fd, Call call);
  std::optional<Outcome> look_at_first_bytes();

  const std::unique_ptr<SSL, Free> ssl_;
  const bool is_switch_;
  const std::string name_;
  mutable std::mutex mutex_;  ///< OpenSSL's objects are for one thread at a time
  Wire wire_;
  std::string error_;
  bool began_ = false;
  bool met_plain_text_ = false;
};

/// One call of OpenSSL, and its result.
template <class Call>
TlsSession::Moved Session::run(int fd, Call call) {
  const std::lock_guard lock(mutex_);
  if (!error_.empty()) return {Outcome::kFailed};
  wire_.fd = fd;
  if (is_switch_ && !began_)
    if (const auto outcome = look_at_first_bytes()) return {*outcome};
  ERR_clear_error();
  errno = 0;
  size_t done = 0;
  const int result = call(done);
  if (result > 0) return {Outcome::kDone, done};
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {Outcome::kWantsRead};
    case SSL_ERROR_WANT_WRITE:
      return {Outcome::kWantsWrite};
    case SSL_ERROR_ZERO_RETURN:
    case SSL_ERROR_SYSCALL:
      return {Outcome::kClosed};
    default:
      break;
  }
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return {Outcome::kClosed};
  error_ = is_switch_ ? switch_text(ssl_.get(), error) : worker_text(ssl_.get(), error, name_);
  return {Outcome::kFailed};
}

/// A worker that speaks plain text begins with the length of a message, at most 16 KiB, so its
/// third byte is 0. TLS begins with 22, 3 and a minor version, which is never 0 there. Nothing: it
/// is TLS.
std::optional<TlsSession::Outcome> Session::look_at_first_bytes() {
  constexpr size_t kEnough = 3;
  while (wire_.before.size() < kEnough) {
    char bytes[kEnough];
    const ssize_t got = ::recv(wire_.fd, bytes, kEnough - wire_.before.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Outcome::kWantsRead;
    if (got <= 0) return Outcome::kClosed;
    wire_.before.append(bytes, static_cast<size_t>(got));
  }
  began_ = true;
  if (wire_.before[0] == 22 && wire_.before[1] == 3 && wire_.before[2] != 0) return std::nullopt;
  met_plain_text_ = true;
  error_ = "nothing else is spoken here; use tls:HOST:PORT";
  return Outcome::kFailed;
}

std::optional<std::string> Session::peer_name() const {
  const std::lock_guard lock(mutex_);
  const std::unique_ptr<X509, Free> certificate(SSL_get1_peer_certificate(ssl_.get()));
  if (!certificate || SSL_get_verify_result(ssl_.get()) != X509_V_OK) return std::nullopt;
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const int first = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  // Several names would be several tenants.
  if (first < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, first) >= 0) return "";
  unsigned char* text = nullptr;
  const int bytes =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, first)));
  if (bytes < 0) return "";
  std::string name(reinterpret_cast<char*>(text), static_cast<size_t>(bytes));
  OPENSSL_free(text);
  return name;
}

// ---- contexts

std::unique_ptr<BIO, Free> bio_of(const std::string& text) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// The certificate, and the chain behind it.
bool use_certificate(SSL_CTX* context, const TlsFiles& pem) {
  const auto certificates = bio_of(pem.certificate);
  std::unique_ptr<X509, Free> own(PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr));
  if (!own || SSL_CTX_use_certificate(context, own.get()) != 1) return false;
  while (X509* next = PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr))
    if (SSL_CTX_add0_chain_cert(context, next) != 1) {
      X509_free(next);
      return false;
    }
  const std::unique_ptr<EVP_PKEY, Free> key(
      PEM_read_bio_PrivateKey(bio_of(pem.key).get(), nullptr, nullptr, nullptr));
  return key && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

bool trust(SSL_CTX* context, const TlsFiles& pem, bool tell_workers) {
  const auto authorities = bio_of(pem.ca);
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  size_t count = 0;
  while (X509* authority = PEM_read_bio_X509(authorities.get(), nullptr, nullptr, nullptr)) {
    const std::unique_ptr<X509, Free> owner(authority);
    if (X509_STORE_add_cert(store, authority) != 1) return false;
    if (tell_workers && SSL_CTX_add_client_CA(context, authority) != 1) return false;
    ++count;
  }
  return count != 0;
}

/// TLS 1.3 at least, no resumption, and little memory for idle peers.
Context new_context(const SSL_METHOD* method) {
  Context context(SSL_CTX_new(method));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_max_cert_list(context.get(), kMaxChainBytes);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  return context;
}

tl::unexpected<Error> openssl_error(const std::string& what) {
  const std::string text = what + ": " + reason_text(ERR_peek_last_error());
  ERR_clear_error();
  return fail(INA_ERR_INVALID, text);
}

class Acceptor final : public TlsAcceptor {
 public:
  explicit Acceptor(Context context) : context_(std::move(context)) {}
  std::unique_ptr<TlsSession> accept() const override {
    return std::make_unique<Session>(context_.get(), true);
  }

 private:
  Context context_;
};

Result<std::unique_ptr<TlsSession>> make_client(const TlsClient& client) {
  constexpr TlsFileNames kNames = {"INA_TLS_CERT", "INA_TLS_KEY", "INA_TLS_CA", false};
  if (client.files.ca.empty())
    return fail(INA_ERR_INVALID,
                "whose word is to be taken for the switch's certificate? Set INA_TLS_CA to the "
                "file of the authority that signed it");
  const auto pem = read_tls_files(client.files, kNames);
  if (!pem) return tl::unexpected(pem.error());
  const Context context = new_context(TLS_client_method());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (!trust(context.get(), *pem, false)) return openssl_error("cannot use INA_TLS_CA");
  if (!pem->certificate.empty() && !use_certificate(context.get(), *pem))
    return openssl_error("cannot use INA_TLS_CERT");
  auto session = std::make_unique<Session>(context.get(), false, client.name);
  if (!session->expect_name()) return openssl_error("'" + client.name + "' is no name of a host");
  return session;
}

}  // namespace

Result<std::shared_ptr<const TlsAcceptor>> load_tls_acceptor(const TlsFiles& paths,
                                                             bool require_certificate,
                                                             const TlsFileNames& names) {
  if (paths.certificate.empty() || paths.key.empty())
    return fail(INA_ERR_INVALID, "TLS needs control.tls_certificate and control.tls_key");
  if (require_certificate && paths.ca.empty())
    return fail(INA_ERR_INVALID,
                "control.tls_require_client_certificate needs control.tls_client_ca: whose "
                "signature shall workers' certificates have?");
  const auto pem = read_tls_files(paths, names);
  if (!pem) return tl::unexpected(pem.error());
  Context context = new_context(TLS_server_method());
  if (!use_certificate(context.get(), *pem))
    return openssl_error(std::string("cannot use ") + names.certificate);
  if (!pem->ca.empty()) {
    if (!trust(context.get(), *pem, true))
      return openssl_error(std::string("cannot use ") + names.ca);
    SSL_CTX_set_verify(
        context.get(),
        SSL_VERIFY_PEER | (require_certificate ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  }
  return std::make_shared<const Acceptor>(std::move(context));
}

extern "C" [[gnu::visibility("default")]] TlsSession* ina_tls_client_1(const TlsClient* client,
                                                                       char* error,
                                                                       size_t error_bytes) {
  auto session = make_client(*client);
  if (session) return session->release();
  std::snprintf(error, error_bytes, "%s", session.error().text.c_str());
  return nullptr;
}

}  // namespace ina::control

#include "control/tls_files.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/fd.h"
#include "common/planted_file.h"

namespace ina::control {

namespace {

constexpr off_t kMaxFileBytes = off_t{1} << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

std::unique_ptr<BIO, Free> bio_of(const std::string& text) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::unique_ptr<X509, Free> certificate_of(const std::string& pem) {
  return std::unique_ptr<X509, Free>(
      PEM_read_bio_X509(bio_of(pem).get(), nullptr, nullptr, nullptr));
}

std::unique_ptr<EVP_PKEY, Free> key_of(const std::string& pem) {
  // Nobody is there to be asked for a password.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return std::unique_ptr<EVP_PKEY, Free>(
      PEM_read_bio_PrivateKey(bio_of(pem).get(), nullptr, no_password, nullptr));
}

std::string named(const std::string& path, const char* setting) {
  return path + " (" + setting + ")";
}

Result<std::string> read_file(const std::string& path, const char* setting, bool guarded) {
  const std::string what = named(path, setting);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail(INA_ERR_INVALID, "cannot open " + what + ": " + std::strerror(errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return fail(INA_ERR_INVALID, what + " is not a regular file");
  if (may_be_planted(fd.get(), path)) return fail(INA_ERR_INVALID, planted_text(what));
  if (guarded && (status.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(status.st_mode & 07777));
    return fail(INA_ERR_INVALID,
                what + " has mode " + mode + ": others may read or write it; chmod 0600 " + path);
  }
  if (status.st_size > kMaxFileBytes)
    return fail(INA_ERR_INVALID, what + " is larger than 1 MiB: it is no PEM file");
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
  if (got < 0) return fail(INA_ERR_INVALID, "cannot read " + what + ": " + std::strerror(errno));
  text.resize(static_cast<size_t>(got));
  return text;
}

}  // namespace

Result<TlsFiles> read_tls_files(const TlsFiles& paths, const TlsFileNames& names) {
  TlsFiles pem;
  // Errors are told in words of our own, and left to nobody.
  struct ClearErrors {
    ~ClearErrors() { ERR_clear_error(); }
  } const clear_errors;
  if (paths.certificate.empty() != paths.key.empty())
    return fail(INA_ERR_INVALID,
                std::string(names.certificate) + " and " + names.key + " go together: one is set");
  if (!paths.certificate.empty()) {
    auto certificate = read_file(paths.certificate, names.certificate, false);
    if (!certificate) return tl::unexpected(certificate.error());
    auto key = read_file(paths.key, names.key, names.key_is_guarded);
    if (!key) return tl::unexpected(key.error());
    pem.certificate = std::move(*certificate);
    pem.key = std::move(*key);
    const auto parsed = certificate_of(pem.certificate);
    if (!parsed)
      return fail(INA_ERR_INVALID,
                  named(paths.certificate, names.certificate) + " is not a PEM certificate");
    const auto private_key = key_of(pem.key);
    if (!private_key)
      return fail(INA_ERR_INVALID,
                  named(paths.key, names.key) + " is not a private key in PEM without a password");
    if (X509_check_private_key(parsed.get(), private_key.get()) != 1)
      return fail(INA_ERR_INVALID, named(paths.key, names.key) + " is not the key of " +
                                       named(paths.certificate, names.certificate));
  }
  if (!paths.ca.empty()) {
    auto ca = read_file(paths.ca, names.ca, false);
    if (!ca) return tl::unexpected(ca.error());
    pem.ca = std::move(*ca);
    if (!certificate_of(pem.ca))
      return fail(INA_ERR_INVALID, named(paths.ca, names.ca) + " has no PEM certificate");
  }
  return pem;
}

}  // namespace ina::control

// Certificates for tests, made when they are needed: authorities, and certificates that they sign.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/support/temp_dir.h"

namespace ina::test {

/// Where a certificate and its key lie, in PEM.
struct CertificateFiles {
  std::string certificate;
  std::string key;
};

class CertificateAuthority {
 public:
  /// Its files go to `folder`, beginning with `name`.
  CertificateAuthority(const TempDir& folder, const std::string& name)
      : folder_(folder), name_(name), key_(new_key()) {
    certificate_ = make(name, key_.get(), "critical,CA:TRUE", "", 3600);
    write(path(name + ".crt"), certificate_.get());
  }

  std::string file() const { return path(name_ + ".crt"); }

  /// A certificate for `common_name`, valid for `names` ("IP:127.0.0.1,DNS:localhost"), and for
  /// `seconds` from now; a negative number: it has expired so long ago.
  CertificateFiles issue(const std::string& common_name, const std::string& names = "",
                         int seconds = 3600) {
    const Key key = new_key();
    const std::string stem = name_ + "-" + std::to_string(++issued_);
    const CertificateFiles files{path(stem + ".crt"), path(stem + ".key")};
    write(files.certificate,
          make(common_name, key.get(), "critical,CA:FALSE", names, seconds).get());
    FILE* file = std::fopen(files.key.c_str(), "w");
    ::chmod(files.key.c_str(), 0600);
    EXPECT_EQ(PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
    std::fclose(file);
    return files;
  }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using Certificate = std::unique_ptr<X509, Free>;

  static Key new_key() { return Key(EVP_EC_gen("P-256")); }
  std::string path(const std::string& file) const { return folder_ / file; }

  static void extend(X509* certificate, X509V3_CTX* context, int kind, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, context, kind, value.c_str());
    ASSERT_NE(extension, nullptr) << value;
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }

  Certificate make(const std::string& common_name, EVP_PKEY* key, const char* constraints,
                   const std::string& names, int seconds) {
    Certificate certificate(X509_new());
    X509* raw = certificate.get();
    X509_set_version(raw, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(raw), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(raw), seconds < 0 ? 2L * seconds - 60 : -60);
    X509_gmtime_adj(X509_getm_notAfter(raw), seconds);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(raw), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                               0);
    X509_set_issuer_name(raw, X509_get_subject_name(certificate_ ? certificate_.get() : raw));
    X509_set_pubkey(raw, key);
    X509V3_CTX context;
    X509V3_set_ctx(&context, certificate_ ? certificate_.get() : raw, raw, nullptr, nullptr, 0);
    extend(raw, &context, NID_basic_constraints, constraints);
    if (!names.empty()) extend(raw, &context, NID_subject_alt_name, names);
    EXPECT_NE(X509_sign(raw, key_.get(), EVP_sha256()), 0);
    return certificate;
  }
  static void write(const std::string& path, X509* certificate) {
    FILE* file = std::fopen(path.c_str(), "w");
    EXPECT_EQ(PEM_write_X509(file, certificate), 1);
    std::fclose(file);
  }

  const TempDir& folder_;
  std::string name_;
  Key key_;
  Certificate certificate_;
  long serial_ = 0;
  int issued_ = 0;
};

}  // namespace ina::test

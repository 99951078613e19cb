#include "control/tokens.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "common/fd.h"
#include "common/planted_file.h"

namespace ina::control {

namespace {

constexpr off_t kMaxFileBytes = off_t{1} << 20;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// The next word of `line`, which loses it; empty if there is none.
std::string_view next_word(std::string_view& line) {
  const auto begin = std::ranges::find_if_not(line, is_blank);
  const auto end = std::find_if(begin, line.end(), is_blank);
  const std::string_view word(begin, end);
  line = std::string_view(end, line.end());
  return word;
}

bool is_tenant_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

/// The problem of an entry; empty: none.
std::string problem_of(std::string_view tenant, std::string_view token, std::string_view rest) {
  if (token.empty() || !rest.empty()) return "a line is a tenant and a token, apart by a blank";
  if (std::string problem = tenant_problem(tenant); !problem.empty()) return problem;
  if (tenant == kAnonymousTenant)
    return "the tenant 'anonymous' is that of workers without a token";
  if (token.size() < TokenTable::kMinTokenBytes || token.size() > TokenTable::kMaxTokenBytes)
    return "the token has not 16..256 characters; make one with: openssl rand -hex 32";
  if (!std::ranges::all_of(token, [](char c) { return c > 0x20 && c < 0x7f; }))
    return "the token has characters other than printable ASCII";
  return {};
}

Result<std::string> read_all(int fd, const std::string& what) {
  std::string text(kMaxFileBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(INA_ERR_INVALID, "cannot read " + what + ": " + std::strerror(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > static_cast<size_t>(kMaxFileBytes))
    return fail(INA_ERR_INVALID, what + " is larger than 1 MiB");
  text.resize(size);
  return text;
}

}  // namespace

std::string tenant_problem(std::string_view tenant) {
  if (!tenant.empty() && tenant.size() <= TokenTable::kMaxTenantBytes &&
      std::ranges::all_of(tenant, is_tenant_character))
    return {};
  return "the tenant is not 1..31 of letters, digits, '_', '-', '.'";
}

std::optional<uid_t> uid_of(const std::string& owner) {
  constexpr std::string_view kUser = "uid:";
  if (!owner.starts_with(kUser)) return std::nullopt;
  uid_t uid = 0;
  const char* end = owner.data() + owner.size();
  const auto [stop, error] = std::from_chars(owner.data() + kUser.size(), end, uid);
  if (error != std::errc() || stop != end || uid == static_cast<uid_t>(-1)) return std::nullopt;
  return uid;
}

bool equal_in_constant_time(std::string_view known, std::string_view shown) {
  if (known.empty()) return shown.empty();
  unsigned difference = known.size() != shown.size();
  for (size_t i = 0; i < shown.size(); ++i)
    difference |= static_cast<uint8_t>(shown[i]) ^ static_cast<uint8_t>(known[i % known.size()]);
  return *const_cast<volatile unsigned*>(&difference) == 0;
}

Result<TokenTable> TokenTable::load(const std::string& path) {
  const std::string what = "the token file " + path + " (control.token_file)";
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail(INA_ERR_INVALID, "cannot open " + what + ": " + std::strerror(errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return fail(INA_ERR_INVALID, what + " is not a regular file");
  if ((status.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(status.st_mode & 07777));
    return fail(INA_ERR_INVALID,
                what + " has mode " + mode + ": others may read or write it; chmod 0600 " + path);
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return fail(INA_ERR_INVALID,
                what + " belongs to another user (uid " + std::to_string(status.st_uid) + ")");
  const auto text = read_all(fd.get(), what);
  if (!text) return tl::unexpected(text.error());

  TokenTable table;
  std::string_view left = *text;
  for (size_t number = 1; !left.empty(); ++number) {
    std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const std::string_view tenant = next_word(line);
    if (tenant.empty() || tenant.starts_with('#')) continue;
    const std::string_view token = next_word(line);
    std::string problem = problem_of(tenant, token, next_word(line));
    if (problem.empty() && table.tenant_of(token))
      problem = "the token stands in an earlier line already";
    if (!problem.empty())
      return fail(INA_ERR_INVALID, what + ", line " + std::to_string(number) + ": " + problem);
    table.entries_.push_back({std::string(tenant), std::string(token)});
  }
  if (table.entries_.empty()) return fail(INA_ERR_INVALID, what + " has no token");
  return table;
}

std::optional<std::string> TokenTable::tenant_of(std::string_view token) const {
  if (token.size() > kMaxTokenBytes) return std::nullopt;
  const Entry* found = nullptr;
  for (const Entry& entry : entries_)
    if (equal_in_constant_time(entry.token, token)) found = &entry;
  if (!found) return std::nullopt;
  return found->tenant;
}

namespace {

/// `variable`, or the first line of the file that `variable`_FILE names.
Result<std::string> own_secret(const Environment& environment, const std::string& variable,
                               const std::string& kind) {
  if (const char* secret = environment(variable.c_str()); secret && *secret)
    return std::string(secret);
  const char* path = environment((variable + "_FILE").c_str());
  if (!path || !*path) return std::string();
  const std::string what = "the " + kind + " file " + path + " (" + variable + "_FILE)";
  const Fd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail(INA_ERR_INVALID, "cannot open " + what + ": " + std::strerror(errno));
  if (may_be_planted(fd.get(), path)) return fail(INA_ERR_INVALID, planted_text(what));
  const auto text = read_all(fd.get(), what);
  if (!text) return tl::unexpected(text.error());
  std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
  const std::string secret(next_word(line));
  if (secret.empty() || !next_word(line).empty())
    return fail(INA_ERR_INVALID,
                what + " does not have a " + kind + ", and nothing else, in its first line");
  return secret;
}

}  // namespace

Result<std::string> own_token(const Environment& environment) {
  return own_secret(environment, "INA_TOKEN", "token");
}

Result<std::string> own_ticket(const Environment& environment) {
  return own_secret(environment, "INA_TICKET", "ticket");
}

TlsFiles own_tls_files(const Environment& environment) {
  const auto value = [&](const char* variable) {
    const char* text = environment(variable);
    return std::string(text ? text : "");
  };
  return {value("INA_TLS_CERT"), value("INA_TLS_KEY"), value("INA_TLS_CA")};
}

}  // namespace ina::control

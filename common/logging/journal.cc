#include "common/logging/journal.h"

#ifdef INA_HAVE_SYSTEMD
// Records name their own event; the place in this file would say nothing.
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>
#include <unistd.h>
#endif

#include <sys/uio.h>
#include <syslog.h>

#include <exception>

#include "common/logging/escape.h"

namespace ina::logging {

namespace {

int priority_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return LOG_CRIT;
    case spdlog::level::err:
      return LOG_ERR;
    case spdlog::level::warn:
      return LOG_WARNING;
    case spdlog::level::info:
      return LOG_INFO;
    default:
      return LOG_DEBUG;
  }
}

}  // namespace

std::string journal_field(std::string_view key, std::string_view value) {
  std::string field = "INA_";
  for (const char c : key)
    field += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c == '.' ? '_' : c;
  field += '=';
  field += value.substr(0, kMaxValueBytes);
  if (value.size() > kMaxValueBytes) field += "...";
  return field;
}

#ifdef INA_HAVE_SYSTEMD

Result<void> find_journal(const std::string& setting) {
  constexpr const char* kSocket = "/run/systemd/journal/socket";
  if (::access(kSocket, W_OK) == 0) return {};
  return fail(INA_ERR_UNSUPPORTED, setting + ": journal needs journald, and there is no " +
                                       kSocket + "; use text or json");
}

void send_to_journal(spdlog::level::level_enum level, std::string_view line,
                     std::vector<std::string> fields) noexcept try {
  fields.push_back("MESSAGE=" + std::string(line));
  fields.push_back("PRIORITY=" + std::to_string(priority_of(level)));
  std::vector<iovec> parts;
  parts.reserve(fields.size());
  for (std::string& field : fields) parts.push_back({field.data(), field.size()});
  ::sd_journal_sendv(parts.data(), static_cast<int>(parts.size()));
} catch (const std::exception&) {
}

#else

Result<void> find_journal(const std::string& setting) {
  return fail(INA_ERR_UNSUPPORTED,
              setting + ": journal: this program was built without libsystemd; use text or json");
}

void send_to_journal(spdlog::level::level_enum, std::string_view,
                     std::vector<std::string>) noexcept {}

#endif

}  // namespace ina::logging

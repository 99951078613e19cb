// Files and addresses of the configuration that are one and the same.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>

#include "common/devargs.h"
#include "switchd/startup/preflight_checks.h"

namespace ina::switchd {

namespace {

/// A file that the configuration names.
struct Place {
  std::string key;
  std::string path;
  bool written = true;  ///< the switch makes it, writes to it, or removes it
};

std::vector<Place> places_of(const Asked& asked) {
  const config::Config& config = asked.config;
  const control::TlsFiles& tls = config.control.tls;
  std::vector<Place> places = {
      {"the configuration's file", asked.config_file, false},
      {"control.socket", config.control.socket},
      {"control.state", config.control.state_path()},
      {"the file beside control.state", config.control.state_path() + ".new"},
      {"the file beside control.state", config.control.state_path() + ".spare"},
      {"log.file", config.log.file},
      {"control.token_file", config.control.token_file, false},
      {"control.tls_certificate", tls.certificate, false},
      {"control.tls_key", tls.key, false},
      {"control.tls_client_ca", tls.ca, false},
      {"admin.certificate", config.admin.tls.certificate, false},
      {"admin.key", config.admin.tls.key, false},
      {"admin.client_ca", config.admin.tls.ca, false}};
  if (config.admin.enabled && config.admin_socket_path() != config.control.socket)
    places.push_back({"admin.socket", config.admin_socket_path()});
  for (const config::PortConfig& port : config.ports) {
    const std::string at = fmt::format("of port {}", port.name);
    const auto add = [&](const char* key, bool written) {
      if (const std::string_view path = device_argument(port.device, key); !path.empty())
        places.push_back({fmt::format("{}= {}", key, at), std::string(path), written});
    };
    if (port.device.starts_with("net_pcap")) {
      add("rx_pcap", false);
      add("tx_pcap", true);
    }
  }
  std::erase_if(places, [](const Place& place) { return place.path.empty(); });
  return places;
}

/// By name, or, if both are there, by what the file system has.
bool is_same(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  if (::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0)
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino && !S_ISCHR(one.st_mode);
  std::error_code error;
  const auto whole = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  };
  return whole(a) == whole(b);
}

struct Listening {
  std::string key;
  std::string listen;
  uint32_t ip = 0;  ///< network byte order; 0: all addresses
  uint16_t port = 0;
};

std::vector<Listening> addresses_of(const config::Config& config) {
  std::vector<Listening> found;
  const auto add = [&](const char* key, const std::string& listen) {
    const size_t colon = listen.rfind(':');
    Listening one{key, listen};
    if (colon == std::string::npos ||
        ::inet_pton(AF_INET, listen.substr(0, colon).c_str(), &one.ip) != 1)
      return;
    std::from_chars(listen.data() + colon + 1, listen.data() + listen.size(), one.port);
    if (one.port != 0) found.push_back(std::move(one));
  };
  add("control.listen", config.control.listen);
  if (config.admin.enabled) add("admin.listen", config.admin.listen);
  add("metrics.listen", config.metrics.listen);
  return found;
}

}  // namespace

void check_same_places(const Asked& asked, Report& report) {
  const std::vector<Place> places = places_of(asked);
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t j = i + 1; j < places.size(); ++j) {
      const Place& a = places[i];
      const Place& b = places[j];
      // The switch may read one file for several purposes.
      if ((a.written || b.written) && is_same(a.path, b.path))
        report.problem(
            a.path == b.path
                ? fmt::format("{} and {} are the same path, {}: set another for one of them", b.key,
                              a.key, b.path)
                : fmt::format("{} and {} are the same file, {} and {}: set another path for one of "
                              "them",
                              b.key, a.key, b.path, a.path));
    }
  const std::vector<Listening> addresses = addresses_of(asked.config);
  for (size_t i = 0; i < addresses.size(); ++i)
    for (size_t j = i + 1; j < addresses.size(); ++j) {
      const Listening& a = addresses[i];
      const Listening& b = addresses[j];
      if (a.port == b.port && (a.ip == b.ip || a.ip == 0 || b.ip == 0))
        report.problem(
            fmt::format("{} ({}) and {} ({}) are the same address: set another port for "
                        "one of them",
                        b.key, b.listen, a.key, a.listen));
    }
}

}  // namespace ina::switchd

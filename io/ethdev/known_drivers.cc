#include "io/ethdev/known_drivers.h"

#include <algorithm>
#include <vector>

#include "common/nearest.h"

namespace ina::io {

namespace {

using Names = std::vector<std::string_view>;

struct Driver {
  std::string_view name;
  Names numbers;  ///< arguments that are whole numbers
  Names others;   ///< other arguments
};

/// Those whose arguments are known here.
const std::vector<Driver>& drivers() {
  static const std::vector<Driver> kDrivers = {
      {"net_af_packet", {"qpairs", "blocksz", "framesz", "framecnt", "qdisc_bypass"}, {"iface"}},
      {"net_af_xdp",
       {"start_queue", "queue_count", "shared_umem", "busy_budget"},
       {"iface", "xdp_prog"}},
      {"net_memif",
       {"id", "bsize", "rsize", "owner-uid", "owner-gid"},
       {"role", "socket", "socket-abstract", "mac", "zero-copy", "secret"}},
      {"net_pcap",
       {"phy_mac", "infinite_rx"},
       {"rx_pcap", "tx_pcap", "rx_iface", "rx_iface_in", "tx_iface", "iface"}},
      {"net_tap", {}, {"iface", "remote", "mac"}}};
  return kDrivers;
}

/// The others that DPDK has without a PCI device.
constexpr std::string_view kOtherDrivers[] = {"net_bonding",     "net_failsafe", "net_kni",
                                              "net_null",        "net_ring",     "net_softnic",
                                              "net_vdev_netvsc", "net_vhost",    "net_virtio_user"};

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

std::string list_of(const Names& names) {
  std::string text;
  for (const std::string_view name : names) (text += text.empty() ? "" : ", ") += name;
  return text;
}

/// "; did you mean 'iface'?", or the names that there are.
std::string hint(std::string_view given, const Names& names) {
  const std::string_view meant = nearest(given, names);
  return meant.empty() ? ": it has " + list_of(names) : ": did you mean " + quoted(meant) + "?";
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string argument_problem(const Driver& driver, std::string_view argument) {
  const std::string_view key = argument.substr(0, argument.find('='));
  Names names = driver.others;
  names.insert(names.end(), driver.numbers.begin(), driver.numbers.end());
  if (std::ranges::find(names, key) == names.end())
    return "the driver " + std::string(driver.name) + " has no argument " + quoted(key) +
           hint(key, names);
  if (key.size() == argument.size() || argument.ends_with('='))
    return "its argument " + quoted(key) + " has no value: write " + std::string(key) + "=VALUE";
  const std::string_view value = argument.substr(key.size() + 1);
  if (std::ranges::find(driver.numbers, key) != driver.numbers.end() && !is_number(value))
    return "its argument " + std::string(key) + "=" + std::string(value) + " is not a whole number";
  return {};
}

std::string arguments_problem(const Driver& driver, std::string_view arguments) {
  while (!arguments.empty()) {
    arguments.remove_prefix(1);  // the comma
    const std::string_view argument = arguments.substr(0, arguments.find(','));
    if (std::string text = argument_problem(driver, argument); !text.empty()) return text;
    arguments.remove_prefix(argument.size());
  }
  return {};
}

/// "0000:01:00.0", or without the domain.
bool is_pci_address(std::string_view text) {
  return std::ranges::count(text, ':') >= 1 && text.find('.') != std::string_view::npos &&
         text.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

}  // namespace

std::string device_problem(std::string_view device) {
  const std::string_view name = device.substr(0, device.find(','));
  for (const Driver& driver : drivers())
    if (name.starts_with(driver.name)) return arguments_problem(driver, device.substr(name.size()));
  if (is_pci_address(name) ||
      std::ranges::any_of(kOtherDrivers, [&](auto other) { return name.starts_with(other); }))
    return {};
  Names names;
  for (const Driver& driver : drivers()) names.push_back(driver.name);
  std::string typed(name.substr(0, name.find_last_not_of("0123456789") + 1));
  if (!typed.starts_with("net_")) typed = "net_" + typed;
  const std::string_view meant = nearest(typed, names);
  return "its device " + quoted(name) +
         " is neither a PCI address, such as 0000:01:00.0, nor of a driver that is known" +
         (meant.empty() ? ": for an interface of the kernel write net_af_packet0,iface=NAME; "
                          "the drivers are " +
                              list_of(names)
                        : ": did you mean " + quoted(meant) + "?");
}

}  // namespace ina::io

#include "transport/dpdk/environment.h"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <mutex>
#include <optional>

#include "io/ethdev/eal.h"

namespace ina::client {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{64} << 20;

/// Guarded by the mutex.
struct Environment {
  std::mutex mutex;
  std::optional<io::Eal> eal;
  std::optional<Error> failure;
  bool has_pci = false;
  uint32_t devices_made = 0;
};

Environment& environment() {
  static auto* const instance = new Environment;
  return *instance;
}

/// A PCI device that was not known when DPDK started.
Result<void> add_pci(const Environment& in, const std::string& pci) {
  uint16_t port_id = 0;
  const std::string address = pci.substr(0, pci.find(','));
  if (rte_eth_dev_get_port_by_name(address.c_str(), &port_id) == 0) return {};
  if (!in.has_pci)
    return fail(INA_ERR_UNSUPPORTED,
                "DPDK runs in this process without PCI devices, because another context needed "
                "none. Open the context of PCI device " +
                    address + " first.");
  if (const int error = rte_dev_probe(pci.c_str()); error != 0)
    return fail(INA_ERR_INTERNAL, "PCI device " + address + " cannot be taken (" +
                                      rte_strerror(-error) + "). Is it bound to vfio-pci?");
  return {};
}

}  // namespace

Result<void> start_dpdk(const std::string& pci) {
  Environment& in = environment();
  const std::lock_guard lock(in.mutex);
  if (in.failure) return tl::unexpected(*in.failure);
  if (in.eal) return pci.empty() ? Result<void>() : add_pci(in, pci);
  // A NIC wants hugepages if there are some; for all else pages do.
  io::EalConfig config;
  config.huge = pci.empty() ? HugePages::kNo : HugePages::kAuto;
  config.memory_bytes = kMemoryBytes;
  config.lcores = 0;
  if (!pci.empty()) config.pci.push_back(pci);
  auto eal = io::Eal::start(config);
  if (!eal) {
    in.failure = eal.error();
    return tl::unexpected(eal.error());
  }
  eal->remove_runtime_folder();  // this Eal is never destroyed
  in.eal = std::move(*eal);
  in.has_pci = !pci.empty();
  return {};
}

uint32_t new_device_number() {
  Environment& in = environment();
  const std::lock_guard lock(in.mutex);
  return in.devices_made++;
}

Result<std::unique_ptr<io::Device>> open_device(const io::DeviceConfig& config) {
  const std::lock_guard lock(environment().mutex);
  return io::Device::open(config);
}

void close_device(std::unique_ptr<io::Device>& device) {
  const std::lock_guard lock(environment().mutex);
  device.reset();
}

}  // namespace ina::client

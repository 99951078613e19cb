#include "transport/dpdk/memif.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "common/clock.h"
#include "transport/dpdk/environment.h"
#include "wire/frame.h"

namespace ina::client {
namespace {

/// memif takes and gives a frame within a burst, so buffers beyond a few bursts are of no use.
constexpr uint16_t kDescriptors = 256;

constexpr std::chrono::milliseconds kStartRetry{10};
constexpr std::chrono::milliseconds kLinkRetry{1};
constexpr Nanos kFirstLinkWaitNs = 200'000'000;

Result<std::string> arguments(const Url& url, uint32_t mtu) {
  const auto id = url.number("id", 0, 0, UINT32_MAX);
  if (!id) return tl::unexpected(id.error());
  if (url.path.find(',') != std::string::npos)
    return fail(INA_ERR_INVALID,
                "URL \"" + url.text + "\": the socket's path must not contain a comma.");
  // A frame must fit one buffer of the ring; whole cache lines.
  const uint32_t buffer_bytes = (mtu + static_cast<uint32_t>(wire::kEthernetBytes) + 63) / 64 * 64;
  return "net_memif" + std::to_string(new_device_number()) +
         ",role=client,id=" + std::to_string(*id) + ",socket=" + url.path +
         ",socket-abstract=no,rsize=10,bsize=" + std::to_string(buffer_bytes);
}

/// The driver asks this of the folder of a socket, and says nothing where it may not: it never
/// connects.
bool is_refused(const std::filesystem::path& folder) {
  return ::faccessat(AT_FDCWD, folder.c_str(), R_OK | W_OK, AT_EACCESS) != 0 && errno == EACCES;
}

}  // namespace

Result<std::unique_ptr<io::Device>> open_memif(const Url& url, uint32_t mtu, Nanos timeout_ns) {
  const Nanos deadline = now_ns() + timeout_ns;
  if (auto done = start_dpdk(""); !done) return tl::unexpected(done.error());
  if (const auto folder = std::filesystem::path(url.path).parent_path();
      !folder.empty() && is_refused(folder))
    return fail(INA_ERR_NO_SWITCH, "No memif of a switch answered at " + url.path +
                                       ": this user may not read and write the folder " +
                                       folder.string() + ", as DPDK's driver wants");
  const auto made_from = arguments(url, mtu);
  if (!made_from) return tl::unexpected(made_from.error());
  const io::DeviceConfig config{.device = *made_from,
                                .mtu = mtu,
                                .rx_descriptors = kDescriptors,
                                .tx_descriptors = kDescriptors,
                                .copy_on_tx = true};
  Nanos patience = kFirstLinkWaitNs;
  do {
    auto device = open_device(config);
    if (!device) {
      if (device.error().status != INA_ERR_INTERNAL) return device;
      std::this_thread::sleep_for(kStartRetry);  // while nobody listens it does not start
      continue;
    }
    const Nanos give_up = std::min(deadline, now_ns() + patience);
    do {
      if ((*device)->link_up()) return device;
      std::this_thread::sleep_for(kLinkRetry);
    } while (now_ns() < give_up);
    // The driver tries once, and comes to nothing with a switch that is about to start.
    close_device(*device);
    patience *= 2;
  } while (now_ns() < deadline);
  return fail(INA_ERR_NO_SWITCH, "No memif of a switch answered at " + url.path + " id " +
                                     url.get("id", "0") + " within " +
                                     std::to_string(timeout_ns / 1'000'000) +
                                     " ms. Is the switch running, and is this id free?");
}

}  // namespace ina::client

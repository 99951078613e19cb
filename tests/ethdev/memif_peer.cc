// The other process of the memif tests.
//
//   memif_peer server SOCKET MTU SLOT_BYTES
//     A switch for one worker: writes its address to stdout, then reads addresses of workers from
//     stdin, one after the other. Each is bound in place of the last and answered with its
//     endpoint. At the end of stdin it writes a MemifReport.
//   memif_peer client URL SLOT_BYTES
//     A worker that sends without end: writes its own address first, and reads nothing from stdin
//     but the switch's address.
//
// Ends by itself after a minute in any case.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "io/ethdev/eal.h"
#include "io/ethdev/ethdev_port.h"
#include "tests/ethdev/memif_peer.h"
#include "transport/frame_transport.h"

extern "C" ina::client::FrameTransport* ina_dpdk_transport_open(const char* url, int64_t timeout_us,
                                                                int* status, char* error_text,
                                                                size_t error_text_bytes);

namespace ina::io {
namespace {

template <class T>
bool write_all(const T& value) {
  return ::write(STDOUT_FILENO, &value, sizeof(value)) == sizeof(value);
}

template <class T>
bool read_all(T& value) {
  return ::read(STDIN_FILENO, &value, sizeof(value)) == sizeof(value);
}

bool stdin_is_ready() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  return ::poll(&in, 1, 0) > 0;
}

void double_into(std::span<int32_t> row, const RxPacket& packet) {
  for (size_t i = 0; i < packet.payload_bytes / sizeof(int32_t); ++i) {
    int32_t element = 0;
    std::memcpy(&element, packet.payload + i * sizeof(element), sizeof(element));
    row[i] = 2 * element;
  }
}

int serve(const std::string& socket, uint32_t mtu, uint32_t slot_bytes) {
  EalConfig eal_config;
  eal_config.huge = HugePages::kNo;
  eal_config.memory_bytes = uint64_t{64} << 20;
  auto eal = Eal::start(eal_config);
  if (!eal) return std::fprintf(stderr, "%s\n", eal.error().text.c_str()), 1;
  eal->remove_runtime_folder();  // tests kill this process
  EthdevPortConfig config;
  config.name = "memif";
  config.device = "net_memif0,role=server,id=0,socket-abstract=no,socket=" + socket;
  config.ip = 0x0a000001;
  config.mtu = mtu;
  config.slot_bytes = slot_bytes;
  config.rx_descriptors = 256;
  auto opened = EthdevPort::open(config);
  if (!opened) return std::fprintf(stderr, "%s\n", opened.error().text.c_str()), 1;
  EthdevPort& port = *opened->front();
  if (!write_all(port.address())) return 1;

  const size_t elements = slot_bytes / sizeof(int32_t);
  std::vector<int32_t> ring(kMemifRows * elements);
  std::vector<RxPacket> burst(32);
  MemifReport report;
  std::optional<EndpointIndex> worker;
  while (true) {
    if (stdin_is_ready()) {
      MemifWorker told;
      if (!read_all(told)) break;
      if (worker) port.unbind(*worker);
      std::optional<wire::TagKeys> keys;
      if (told.tags) keys = kMemifTagKeys;
      worker = port.bind(told.address, kMemifJob, kMemifJobKey, 0, kMemifRank, keys).value();
      if (!write_all(*worker)) break;
    }
    const size_t count = port.rx_burst(burst);
    for (const RxPacket& packet : std::span(burst).first(count)) {
      const uint32_t seq = packet.message.seq;
      const auto row = std::span(ring).subspan(seq % kMemifRows * elements, elements);
      double_into(row, packet);
      port.tx(*worker, memif_message(wire::Type::kResult, seq, slot_bytes),
              std::as_bytes(std::span(row)));
      ++report.results;
    }
    port.rx_release();
    port.tx_flush();
    if (count == 0) ::sched_yield();
  }
  report.counters = port.counters();
  return write_all(report) ? 0 : 1;
}

int flood(const char* url, uint32_t slot_bytes) {
  char error[512] = "";
  client::FrameTransport* const transport =
      ina_dpdk_transport_open(url, 10'000'000, nullptr, error, sizeof(error));
  if (transport == nullptr) return std::fprintf(stderr, "%s\n", error), 1;
  wire::Address switch_address;
  if (!write_all(transport->address()) || !read_all(switch_address)) return 1;
  transport->bind({.own = transport->address(),
                   .switch_address = switch_address,
                   .job = kMemifJob,
                   .job_key = kMemifJobKey,
                   .lanes = 1,
                   .slot_bytes = slot_bytes});
  const std::vector<int32_t> values = memif_gradient(0, slot_bytes);
  std::vector<client::TxPacket> send(32);
  std::vector<client::RxPacket> receive(32);
  for (uint32_t seq = 0;; seq += 32) {
    for (uint32_t i = 0; i < send.size(); ++i)
      send[i] = {.message = memif_message(wire::Type::kGrad, seq + i, slot_bytes),
                 .payload = reinterpret_cast<const std::byte*>(values.data()),
                 .payload_bytes = slot_bytes};
    transport->tx_burst(send);
    transport->rx_burst(receive);
    transport->rx_release();
  }
}

}  // namespace
}  // namespace ina::io

int main(int argc, char** argv) {
  ::alarm(60);
  const std::string mode = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) {
    return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  if (mode == "server" && argc == 5) return ina::io::serve(argv[2], number(3), number(4));
  if (mode == "client" && argc == 4) return ina::io::flood(argv[2], number(3));
  return 2;
}

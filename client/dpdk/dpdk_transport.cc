#include "client/dpdk/dpdk_transport.h"

#include <pthread.h>
#include <rte_mbuf.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "io/ethdev/eal.h"

namespace ina::client {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{64} << 20;
/// memif takes and gives a frame within a burst, so buffers beyond a few bursts are of no use.
constexpr uint16_t kDescriptors = 256;

constexpr Nanos kFirstSleepNs = 50'000;
constexpr Nanos kLongestSleepNs = 1'000'000;
constexpr Nanos kStartRetryNs = 10'000'000;
constexpr Nanos kFirstLinkWaitNs = 200'000'000;

void sleep_ns(Nanos duration_ns) {
  const timespec duration{duration_ns / 1'000'000'000, duration_ns % 1'000'000'000};
  ::nanosleep(&duration, nullptr);
}

/// Runs `work` in a thread of its own in which all signals are blocked. DPDK changes the affinity
/// of the thread that starts it and the threads it makes inherit the signal mask; memif writes to
/// its socket without caring for SIGPIPE. Nothing of that may reach the host's threads.
template <class Work>
void run_apart(Work&& work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::exception_ptr no_thread;
  try {
    thread = std::thread(std::forward<Work>(work));
  } catch (...) {
    no_thread = std::current_exception();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (no_thread) std::rethrow_exception(no_thread);
  thread.join();
}

/// DPDK as this process has it: started once, never stopped. Guarded by the mutex.
struct Environment {
  std::mutex mutex;
  std::optional<io::Eal> eal;
  std::optional<Error> failure;
  uint32_t devices_made = 0;
};

Environment& environment() {
  static auto* const instance = new Environment;
  return *instance;
}

Result<void> start_dpdk(Environment& in) {
  if (in.failure) return tl::unexpected(*in.failure);
  if (in.eal) return {};
  auto eal = io::Eal::start({.huge = io::EalConfig::Huge::kNo,
                             .memory_bytes = kMemoryBytes,
                             .file_prefix = {},
                             .cpus = {},
                             .lcores = 0,
                             .vdevs = {},
                             .pci = {},
                             .extra_args = {},
                             .log = {}});
  if (!eal) {
    in.failure = eal.error();
    return tl::unexpected(eal.error());
  }
  eal->remove_runtime_folder();  // this Eal is never destroyed
  in.eal = std::move(*eal);
  return {};
}

Result<std::string> memif_arguments(const Url& url, uint32_t mtu, uint32_t number) {
  const auto id = url.number("id", 0, 0, UINT32_MAX);
  if (!id) return tl::unexpected(id.error());
  if (url.path.find(',') != std::string::npos)
    return fail(INA_ERR_INVALID,
                "URL \"" + url.text + "\": the socket's path must not contain a comma.");
  // A frame must fit one buffer of the ring; whole cache lines.
  const uint32_t buffer_bytes = (mtu + static_cast<uint32_t>(wire::kEthernetBytes) + 63) / 64 * 64;
  return "net_memif" + std::to_string(number) + ",role=client,id=" + std::to_string(*id) +
         ",socket=" + url.path +
         ",socket-abstract=no,rsize=10,bsize=" + std::to_string(buffer_bytes);
}

Result<std::unique_ptr<io::Device>> make_device(const std::string& arguments, uint32_t mtu) {
  const std::lock_guard lock(environment().mutex);
  return io::Device::open({.device = arguments,
                           .mtu = mtu,
                           .rx_descriptors = kDescriptors,
                           .tx_descriptors = kDescriptors,
                           .copy_on_tx = true});
}

void close_device(std::unique_ptr<io::Device>& device) {
  const std::lock_guard lock(environment().mutex);
  device.reset();
}

Result<std::string> prepare(const Url& url, uint32_t mtu) {
  Environment& in = environment();
  const std::lock_guard lock(in.mutex);
  if (auto done = start_dpdk(in); !done) return tl::unexpected(done.error());
  return memif_arguments(url, mtu, in.devices_made++);
}

Result<std::unique_ptr<io::Device>> open_device(const Url& url, uint32_t mtu, int64_t timeout_us) {
  const Nanos deadline = now_ns() + timeout_us * 1000;
  const auto arguments = prepare(url, mtu);
  if (!arguments) return tl::unexpected(arguments.error());
  Nanos patience = kFirstLinkWaitNs;
  do {
    auto device = make_device(*arguments, mtu);
    if (!device) {
      if (device.error().status != INA_ERR_INTERNAL) return device;
      sleep_ns(kStartRetryNs);  // it does not start while nobody listens on the socket
      continue;
    }
    const Nanos give_up = std::min(deadline, now_ns() + patience);
    do {
      if ((*device)->link_up()) return device;
      sleep_ns(kLongestSleepNs);
    } while (now_ns() < give_up);
    // The driver tries once, and comes to nothing with a switch that is about to start.
    close_device(*device);
    patience *= 2;
  } while (now_ns() < deadline);
  return fail(INA_ERR_NO_SWITCH, "No memif of a switch answered at " + url.path + " id " +
                                     url.get("id", "0") + " within " +
                                     std::to_string(timeout_us / 1000) +
                                     " ms. Is the switch running, and is this id free?");
}

}  // namespace

Result<std::unique_ptr<DpdkTransport>> DpdkTransport::open(std::string_view text,
                                                           int64_t timeout_us) {
  const auto url = parse_url(text);
  if (!url) return tl::unexpected(url.error());
  if (url->scheme != "memif")
    return fail(
        INA_ERR_UNSUPPORTED,
        "URL \"" + url->text + "\": this library opens memif: only, not " + url->scheme + ":.");
  if (auto done = url->check_keys({"id", "ip", "udp_port", "mtu", "control", "port"}); !done)
    return tl::unexpected(done.error());
  const auto ip = url->ipv4("ip");
  if (!ip) return tl::unexpected(ip.error());
  const auto udp_port = url->number("udp_port", wire::kDefaultUdpPort, 1, 65535);
  if (!udp_port) return tl::unexpected(udp_port.error());
  const auto mtu = url->number("mtu", 1500, 576, 16000);
  if (!mtu) return tl::unexpected(mtu.error());

  const wire::Address own{{}, *ip, static_cast<uint16_t>(*udp_port)};
  std::unique_ptr<DpdkTransport> transport(
      new DpdkTransport(*url, static_cast<uint32_t>(*mtu), own));
  if (auto opened = transport->reopen(timeout_us * 1000); !opened)
    return tl::unexpected(opened.error());
  return transport;
}

DpdkTransport::DpdkTransport(Url url, uint32_t mtu, const wire::Address& own)
    : url_(std::move(url)), mtu_(mtu), own_(own) {}

DpdkTransport::~DpdkTransport() {
  close();
}

Result<void> DpdkTransport::reopen(Nanos timeout_ns) {
  // The driver allows one device for each socket and id.
  close();
  Result<std::unique_ptr<io::Device>> device;
  run_apart([&] { device = open_device(url_, mtu_, timeout_ns / 1000); });
  if (!device) return tl::unexpected(device.error());
  device_ = std::move(*device);
  own_.mac = device_->mac();
  return {};
}

void DpdkTransport::close() {
  bound_ = false;
  rte_pktmbuf_free_bulk(received_.data(), received_count_);
  rte_pktmbuf_free_bulk(unsent_.data() + unsent_begin_, unsent_end_ - unsent_begin_);
  read_ = received_count_ = 0;
  unsent_begin_ = unsent_end_ = 0;
  if (!device_) return;
  const auto close = [this] { close_device(device_); };
  try {
    run_apart(close);
  } catch (...) {  // no thread to be had: better here than not at all
    close();
  }
}

void DpdkTransport::bind(const FrameBinding& binding) {
  binding_ = binding;
  bound_ = true;
}

// ---- sending -----------------------------------------------------------------------------------

size_t DpdkTransport::tx_burst(std::span<const TxPacket> packets) {
  if (!bound_) return 0;
  flush();
  if (unsent_begin_ != unsent_end_) return 0;
  unsent_begin_ = 0;
  unsent_end_ = 0;
  const size_t room = std::min<size_t>(packets.size(), kMaxBurst);
  while (unsent_end_ < room) {
    rte_mbuf* const frame = make_frame(packets[unsent_end_]);
    if (frame == nullptr) break;
    unsent_[unsent_end_++] = frame;
  }
  const size_t taken = unsent_end_;
  flush();
  return taken;
}

rte_mbuf* DpdkTransport::make_frame(const TxPacket& packet) {
  rte_mbuf* const frame = rte_pktmbuf_alloc(device_->tx_pool());
  if (frame == nullptr) return nullptr;
  const size_t bytes = wire::kFrameHeaderBytes + packet.payload_bytes;
  auto* const data =
      reinterpret_cast<std::byte*>(rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes)));
  if (data == nullptr) {  // slot_bytes exceed the mtu
    rte_pktmbuf_free(frame);
    return nullptr;
  }
  std::byte* const payload = data + wire::kFrameHeaderBytes;
  if (packet.payload_bytes != 0) std::memcpy(payload, packet.payload, packet.payload_bytes);
  wire::Envelope envelope{.source = binding_.own,
                          .destination = binding_.switch_address,
                          .job = binding_.job,
                          .job_key = binding_.job_key,
                          .tag = 0};
  envelope.destination.udp_port =
      static_cast<uint16_t>(envelope.destination.udp_port + packet.message.lane);
  const std::span<const std::byte> sent(payload, packet.payload_bytes);
  std::optional<wire::Seal> seal;
  if (binding_.tag_keys) seal = wire::make_seal(*binding_.tag_keys, sent);
  wire::encode_headers(envelope, packet.message, sent, {data, wire::kFrameHeaderBytes},
                       seal ? &*seal : nullptr);
  return frame;
}

void DpdkTransport::flush() {
  while (unsent_begin_ != unsent_end_) {
    const uint16_t sent = device_->tx(unsent_.data() + unsent_begin_, unsent_end_ - unsent_begin_);
    if (sent == 0) return;
    unsent_begin_ += sent;
  }
}

// ---- receiving ---------------------------------------------------------------------------------

/// True if frames are there that have not been looked at.
bool DpdkTransport::poll() {
  flush();
  if (read_ < received_count_) return true;
  rx_release();
  received_count_ = device_->rx(received_.data(), kMaxBurst);
  return received_count_ != 0;
}

size_t DpdkTransport::rx_burst(std::span<RxPacket> packets) {
  size_t filled = 0;
  if (!poll()) return 0;
  while (read_ < received_count_ && filled < packets.size()) {
    if (parse(received_[read_++], packets[filled])) {
      ++filled;
    } else {
      ++counters_.dropped;
    }
  }
  return filled;
}

bool DpdkTransport::parse(const rte_mbuf* buffer, RxPacket& packet) const {
  if (!bound_ || buffer->nb_segs != 1) return false;
  const auto frame = wire::parse_frame(
      {rte_pktmbuf_mtod(buffer, const std::byte*), buffer->data_len}, own_.udp_port, 1);
  if (!frame) return false;
  const wire::Address& source = frame->envelope.source;
  const wire::Address& expected = binding_.switch_address;
  const auto lane = static_cast<uint16_t>(source.udp_port - expected.udp_port);
  if (source.ip != expected.ip || source.mac != expected.mac || lane >= binding_.lanes ||
      frame->envelope.destination.ip != own_.ip || frame->envelope.job != binding_.job ||
      frame->envelope.job_key != binding_.job_key ||
      (binding_.tag_keys &&
       !wire::tag_matches(
           *frame, wire::make_seal(*binding_.tag_keys, {frame->payload, frame->payload_bytes}))) ||
      wire::validate(frame->message, frame->payload_bytes, binding_.slot_bytes))
    return false;
  packet = {
      .message = frame->message, .payload = frame->payload, .payload_bytes = frame->payload_bytes};
  return true;
}

/// Frees the frames that were looked at; the rest of a burst, if any, stays for the next rx_burst.
void DpdkTransport::rx_release() {
  rte_pktmbuf_free_bulk(received_.data(), read_);
  std::copy(received_.begin() + read_, received_.begin() + received_count_, received_.begin());
  received_count_ -= read_;
  read_ = 0;
}

void DpdkTransport::wait(Nanos timeout_ns) {
  // memif has an interrupt per ring, but DPDK offers it to its own threads only.
  const Nanos deadline = now_ns() + timeout_ns;
  Nanos sleep = kFirstSleepNs;
  bool slept = false;
  while (!woken_.exchange(false, std::memory_order_acquire) && !poll()) {
    const Nanos left = deadline - now_ns();
    if (left <= 0) break;
    sleep_ns(std::min(sleep, left));
    sleep = std::min(2 * sleep, kLongestSleepNs);
    slept = true;
  }
  if (slept) ++counters_.sleeps;
}

}  // namespace ina::client

ina::client::FrameTransport* ina_dpdk_transport_open(const char* url, int64_t timeout_us,
                                                     char* error_text, size_t error_text_bytes) {
  std::string text;
  try {
    auto transport = ina::client::DpdkTransport::open(url == nullptr ? "" : url, timeout_us);
    if (transport) return transport->release();
    text = transport.error().text;
  } catch (const std::exception& error) {
    text = error.what();
  }
  if (error_text != nullptr && error_text_bytes != 0) {
    const size_t bytes = std::min(text.size(), error_text_bytes - 1);
    std::memcpy(error_text, text.data(), bytes);
    error_text[bytes] = '\0';
  }
  return nullptr;
}

#include "transport/dpdk/dpdk_transport.h"

#include <poll.h>
#include <rte_mbuf.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/clock.h"
#include "common/event_fd.h"
#include "io/ethdev/frame_buffer.h"
#include "transport/dpdk/environment.h"
#include "transport/dpdk/memif.h"

namespace ina::client {
namespace {

constexpr Nanos kFirstSleepNs = 50'000;
constexpr Nanos kLongestSleepNs = 1'000'000;

struct Place {
  wire::Address own;
  uint32_t mtu = 0;
};

Result<Place> memif_place(const Url& url) {
  if (auto done = url.check_keys({"id", "ip", "udp_port", "mtu", "control", "port"}); !done)
    return tl::unexpected(done.error());
  const auto ip = url.ipv4("ip");
  if (!ip) return tl::unexpected(ip.error());
  const auto udp_port = url.number("udp_port", wire::kDefaultUdpPort, 1, 65535);
  if (!udp_port) return tl::unexpected(udp_port.error());
  const auto mtu = url.number("mtu", 1500, 576, 16000);
  if (!mtu) return tl::unexpected(mtu.error());
  return Place{{{}, *ip, static_cast<uint16_t>(*udp_port)}, static_cast<uint32_t>(*mtu)};
}

}  // namespace

Result<std::unique_ptr<DpdkTransport>> DpdkTransport::open(std::string_view text,
                                                           int64_t timeout_us) {
  const auto url = parse_url(text);
  if (!url) return tl::unexpected(url.error());
  std::shared_ptr<SharedDevice> device;
  if (url->scheme == "memif") {
    const auto place = memif_place(*url);
    if (!place) return tl::unexpected(place.error());
    device = std::make_shared<SharedDevice>(*url, place->mtu, place->own, std::nullopt);
  } else if (url->scheme == "dpdk") {
    auto ethernet = Ethernet::resolve(*url);
    if (!ethernet) return tl::unexpected(ethernet.error());
    const uint32_t mtu = ethernet->mtu();
    device = std::make_shared<SharedDevice>(*url, mtu, wire::Address{}, std::move(*ethernet));
  } else {
    return fail(INA_ERR_UNSUPPORTED, "URL \"" + url->text +
                                         "\": this library opens memif: and dpdk: only, not " +
                                         url->scheme + ":.");
  }
  std::unique_ptr<DpdkTransport> transport(new DpdkTransport(std::move(device), true));
  if (auto opened = transport->reopen(timeout_us * 1000); !opened)
    return tl::unexpected(opened.error());
  return transport;
}

DpdkTransport::DpdkTransport(std::shared_ptr<SharedDevice> device, bool leads)
    : device_(std::move(device)), leads_(leads) {
  device_->add(channel_);
}

DpdkTransport::~DpdkTransport() {
  device_->remove(channel_);
}

Result<std::unique_ptr<FrameTransport>> DpdkTransport::share() {
  std::unique_ptr<DpdkTransport> transport(new DpdkTransport(device_, false));
  if (auto opened = transport->reopen(0); !opened) return tl::unexpected(opened.error());
  transport->max_slot_bytes_ = max_slot_bytes_;
  return transport;
}

Result<void> DpdkTransport::reopen(Nanos timeout_ns) {
  if (!channel_.wake_event) return fail(INA_ERR_NO_MEMORY, "No eventfd for a transport.");
  if (leads_) {
    if (auto opened = device_->reopen(timeout_ns); !opened) return opened;
    max_slot_bytes_ = device_->frame_bytes() - static_cast<uint32_t>(wire::kFrameHeaderBytes);
  }
  own_ = device_->own();
  return {};
}

void DpdkTransport::bind(const FrameBinding& binding) {
  binding_ = binding;
  device_->bind(channel_, binding.job);
}

// ---- sending -----------------------------------------------------------------------------------

size_t DpdkTransport::tx_burst(std::span<const TxPacket> packets) {
  if (!channel_.bound) return 0;
  flush();
  if (channel_.unsent_begin != channel_.unsent_end) return 0;
  channel_.unsent_begin = 0;
  channel_.unsent_end = 0;
  const size_t room = std::min<size_t>(packets.size(), kMaxBurst);
  while (channel_.unsent_end < room) {
    rte_mbuf* const frame = make_frame(packets[channel_.unsent_end]);
    if (frame == nullptr) break;
    channel_.unsent[channel_.unsent_end++] = frame;
  }
  const size_t taken = channel_.unsent_end;
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
  if (channel_.unsent_begin != channel_.unsent_end) device_->tx(channel_);
}

// ---- receiving ---------------------------------------------------------------------------------

/// True if frames are there that have not been looked at.
bool DpdkTransport::poll() {
  flush();
  if (channel_.read < channel_.received_count) return true;
  rx_release();
  device_->rx(channel_);
  return channel_.received_count != 0;
}

size_t DpdkTransport::rx_burst(std::span<RxPacket> packets) {
  size_t filled = 0;
  if (!poll()) return 0;
  while (channel_.read < channel_.received_count && filled < packets.size()) {
    if (parse(channel_.received[channel_.read++], packets[filled])) {
      ++filled;
    } else {
      ++counters_.dropped;
    }
  }
  return filled;
}

bool DpdkTransport::parse(rte_mbuf* buffer, RxPacket& packet) const {
  if (!channel_.bound || !io::is_in_one_piece(buffer)) return false;
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
  rte_pktmbuf_free_bulk(channel_.received.data(), channel_.read);
  std::copy(channel_.received.begin() + channel_.read,
            channel_.received.begin() + channel_.received_count, channel_.received.begin());
  channel_.received_count -= channel_.read;
  channel_.read = 0;
}

void DpdkTransport::wait(Nanos timeout_ns) {
  // Sockets of the kernel wake; memif has an interrupt, but DPDK offers it to its own threads only.
  // Nothing tells when there is room again for unsent frames.
  if (woken()) return;
  const Nanos deadline = now_ns() + timeout_ns;
  Nanos patience = kFirstSleepNs;
  bool slept = false;
  channel_.asleep = true;
  while (!poll()) {
    const Nanos left = deadline - now_ns();
    if (left <= 0) break;
    const bool wakes = device_->socket() >= 0 && channel_.unsent_begin == channel_.unsent_end;
    slept = true;
    if (sleep(wakes ? left : std::min(patience, left))) break;
    patience = std::min(2 * patience, kLongestSleepNs);
  }
  channel_.asleep = false;
  if (slept) ++counters_.sleeps;
}

TransportCounters DpdkTransport::counters() const {
  TransportCounters counters = counters_;
  counters.dropped += channel_.lost.load(std::memory_order_relaxed);
  return counters;
}

/// True: woken by wake(), or by a frame in the inbox.
bool DpdkTransport::sleep(Nanos duration_ns) {
  pollfd fds[] = {{channel_.wake_event.get(), POLLIN, 0}, {device_->socket(), POLLIN, 0}};
  const timespec duration{duration_ns / 1'000'000'000, duration_ns % 1'000'000'000};
  if (::ppoll(fds, 2, &duration, nullptr) <= 0) return false;
  if ((fds[1].revents & POLLERR) != 0) {
    // The interface went down. Asking takes the error away, which else ends each further wait.
    int error = 0;
    socklen_t bytes = sizeof error;
    ::getsockopt(fds[1].fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  }
  return fds[0].revents != 0 && woken();
}

bool DpdkTransport::woken() {
  return drain_event(channel_.wake_event.get());
}

void DpdkTransport::wake() {
  ring_event(channel_.wake_event.get());
}

}  // namespace ina::client

ina::client::FrameTransport* ina_dpdk_transport_open(const char* url, int64_t timeout_us,
                                                     int* status, char* error_text,
                                                     size_t error_text_bytes) {
  ina::Error error;
  try {
    auto transport = ina::client::DpdkTransport::open(url == nullptr ? "" : url, timeout_us);
    if (transport) return transport->release();
    error = transport.error();
  } catch (const std::exception& thrown) {
    error.text = thrown.what();
  }
  if (status != nullptr) *status = error.status;
  if (error_text != nullptr && error_text_bytes != 0) {
    const size_t bytes = std::min(error.text.size(), error_text_bytes - 1);
    std::memcpy(error_text, error.text.data(), bytes);
    error_text[bytes] = '\0';
  }
  return nullptr;
}

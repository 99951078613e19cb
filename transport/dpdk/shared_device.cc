#include "transport/dpdk/shared_device.h"

#include <rte_mbuf.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/event_fd.h"
#include "transport/dpdk/environment.h"
#include "transport/dpdk/memif.h"

namespace ina::client {

// ---- a channel

SharedDevice::Channel::Channel() : wake_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

SharedDevice::Channel::~Channel() {
  drop_frames();
}

void SharedDevice::Channel::drop_frames() {
  rte_pktmbuf_free_bulk(inbox.data(), waiting);
  rte_pktmbuf_free_bulk(received.data(), received_count);
  rte_pktmbuf_free_bulk(unsent.data() + unsent_begin, unsent_end - unsent_begin);
  waiting = 0;
  read = received_count = 0;
  unsent_begin = unsent_end = 0;
}

// ---- the device

SharedDevice::SharedDevice(Url url, uint32_t mtu, const wire::Address& own,
                           std::optional<Ethernet> ethernet)
    : url_(std::move(url)), mtu_(mtu), ethernet_(std::move(ethernet)), own_(own) {}

SharedDevice::~SharedDevice() {
  close();
}

Result<void> SharedDevice::reopen(Nanos timeout_ns) {
  const std::lock_guard lock(mutex_);
  for (Channel* channel : channels_) {
    channel->bound = false;
    channel->drop_frames();
  }
  if (ethernet_ && device_) {
    // It knows nothing of the switch. A new port keeps out what is still on its way.
    if (auto taken = ethernet_->take_port(*device_); !taken) return taken;
    own_.udp_port = ethernet_->own().udp_port;
    return {};
  }
  close();
  Result<std::unique_ptr<io::Device>> device;
  run_apart([&] { device = ethernet_ ? ethernet_->open() : open_memif(url_, mtu_, timeout_ns); });
  if (!device) return tl::unexpected(device.error());
  device_ = std::move(*device);
  if (ethernet_) own_ = ethernet_->own();
  own_.mac = device_->mac();
  return {};
}

void SharedDevice::close() {
  if (!device_) return;
  const auto close = [this] { close_device(device_); };
  try {
    run_apart(close);
  } catch (...) {  // no thread to be had: better here than not at all
    close();
  }
}

wire::Address SharedDevice::own() const {
  const std::lock_guard lock(mutex_);
  return own_;
}

void SharedDevice::add(Channel& channel) {
  const std::lock_guard lock(mutex_);
  channels_.push_back(&channel);
}

void SharedDevice::remove(Channel& channel) {
  const std::lock_guard lock(mutex_);
  std::erase(channels_, &channel);
  channel.drop_frames();
}

void SharedDevice::bind(Channel& channel, JobId job) {
  const std::lock_guard lock(mutex_);
  channel.job = job;
  channel.bound = true;
}

// ---- frames

void SharedDevice::rx(Channel& own) {
  const std::lock_guard lock(mutex_);
  if (own.waiting != 0) {
    own.received_count = std::min(own.waiting, kMaxBurst);
    std::copy_n(own.inbox.begin(), own.received_count, own.received.begin());
    std::copy(own.inbox.begin() + own.received_count, own.inbox.begin() + own.waiting,
              own.inbox.begin());
    own.waiting = static_cast<uint16_t>(own.waiting - own.received_count);
    return;
  }
  if (channels_.size() == 1) {
    own.received_count = device_->rx(own.received.data(), kMaxBurst);
    return;
  }
  std::array<rte_mbuf*, kMaxBurst> frames;
  const uint16_t count = device_->rx(frames.data(), kMaxBurst);
  for (uint16_t i = 0; i < count; ++i) hand_over(frames[i], own);
}

/// A frame of nobody goes to `own`, which counts it.
void SharedDevice::hand_over(rte_mbuf* frame, Channel& own) {
  const auto parsed =
      wire::parse_unchecked({rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len}, 0, 0);
  const auto is_of = [&](const Channel* channel) {
    return channel->bound && channel->job == parsed->envelope.job;
  };
  const auto found =
      parsed ? std::find_if(channels_.begin(), channels_.end(), is_of) : channels_.end();
  Channel& to = found == channels_.end() ? own : **found;
  if (&to == &own) {
    own.received[own.received_count++] = frame;
    return;
  }
  if (to.waiting == kInboxFrames) {
    ++to.lost;
    rte_pktmbuf_free(frame);
    return;
  }
  to.inbox[to.waiting++] = frame;
  if (to.asleep.exchange(false)) {
    ring_event(to.wake_event.get());
  }
}

void SharedDevice::tx(Channel& own) {
  const std::lock_guard lock(mutex_);
  while (own.unsent_begin != own.unsent_end) {
    const uint16_t sent =
        device_->tx(own.unsent.data() + own.unsent_begin, own.unsent_end - own.unsent_begin);
    if (sent == 0) return;
    own.unsent_begin += sent;
  }
}

}  // namespace ina::client

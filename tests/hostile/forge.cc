#include "tests/hostile/forge.h"

#include <algorithm>

namespace ina::hostile {

namespace {
constexpr size_t kIpAt = wire::kEthernetBytes;
constexpr size_t kUdpAt = kIpAt + wire::kIpv4Bytes;
constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
}  // namespace

Forge::Forge(Facts facts) : facts_(std::move(facts)), random_(facts_.seed) {
  for (size_t at = 0; at < noise_.size(); at += 8) {
    const uint64_t bits = random_.next();
    std::memcpy(noise_.data() + at, &bits, sizeof bits);
  }
}

void Forge::resize(size_t bytes) {
  size_ = std::clamp<size_t>(bytes, wire::kEthernetBytes, kMaxBytes);
}

wire::Message Forge::grad(uint32_t epoch, uint32_t seq, Rank rank, uint32_t slot_bytes) {
  wire::Message message;
  message.type = wire::Type::kGrad;
  message.epoch = epoch;
  message.seq = seq;
  message.bitmap = WorkerSet::of(rank);
  message.rank = rank;
  message.dtype = DType::kInt32;
  message.op = Op::kSum;
  message.collective = Collective::kAllReduce;
  message.elements = static_cast<uint16_t>(elements_per_fragment(DType::kInt32, slot_bytes));
  message.operation_elements = uint64_t{1} << 31;
  message.priority = 255;
  return message;
}

void Forge::encode(const wire::Envelope& envelope, const wire::Message& message,
                   size_t payload_bytes) {
  resize(wire::kFrameHeaderBytes + payload_bytes);
  const size_t from = random_.below(noise_.size() - payload_bytes) & ~size_t{7};
  std::byte* const payload = bytes_.data() + wire::kFrameHeaderBytes;
  std::memcpy(payload, noise_.data() + from, payload_bytes);
  wire::encode_headers(envelope, message, {payload, payload_bytes},
                       {bytes_.data(), wire::kFrameHeaderBytes});
}

void Forge::from_tenant(const Tenant& tenant, uint32_t rank, const wire::Message& message) {
  from_tenant(tenant, rank, message, wire::payload_bytes(message));
}

void Forge::from_tenant(const Tenant& tenant, uint32_t rank, const wire::Message& message,
                        size_t payload_bytes) {
  wire::Envelope envelope{.source = facts_.own,
                          .destination = facts_.switch_address,
                          .job = tenant.job,
                          .job_key = tenant.key};
  envelope.source.udp_port = tenant.udp_ports[rank];
  encode(envelope, message, payload_bytes);
}

void Forge::as_victim(const Worker& victim, const wire::Address& source) {
  const wire::Envelope envelope{.source = source,
                                .destination = facts_.switch_address,
                                .job = victim.job,
                                .job_key = victim.key};
  const auto seq = static_cast<uint32_t>(victim.seq + random_.below(4096));
  encode(envelope, grad(victim.epoch, seq, Rank{0}, facts_.slot_bytes), facts_.slot_bytes);
}

void Forge::capture(size_t number) {
  const std::string& frame = facts_.captured[number % facts_.captured.size()];
  resize(frame.size());
  std::memcpy(bytes_.data(), frame.data(), size_);
}

void Forge::datagram(const wire::Address& from, const wire::Address& to, size_t payload_bytes) {
  wire::Message message;
  encode({.source = from, .destination = to}, message, payload_bytes);
  // The INA header is noise, too.
  std::memcpy(bytes_.data() + kUdpAt + wire::kUdpBytes, noise_.data(), wire::kInaHeaderBytes);
}

void Forge::arp(const wire::Address& from, uint32_t ip, uint16_t operation) {
  resize(wire::kMinFrameBytes);
  std::fill_n(bytes_.begin(), size_, std::byte{0});
  set_macs(kBroadcast, from.mac);
  store(12, 0x0806'0001'0800'0604, 8);
  store(20, operation, 2);
  std::memcpy(bytes_.data() + 22, from.mac.data(), from.mac.size());
  store(28, from.ip, 4);
  store(38, ip, 4);
}

void Forge::set_macs(const wire::MacAddress& destination, const wire::MacAddress& source) {
  std::memcpy(bytes_.data(), destination.data(), destination.size());
  std::memcpy(bytes_.data() + 6, source.data(), source.size());
}

void Forge::set_source_ip(uint32_t ip) {
  store(kIpAt + 12, ip, 4);
  seal_ip();
}

void Forge::store(size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    bytes_[at + i] = static_cast<std::byte>(value >> 8 * (bytes - 1 - i) & 0xff);
}

uint64_t Forge::load(size_t at, size_t bytes) const {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<uint64_t>(bytes_[at + i]);
  return value;
}

void Forge::seal_ip() {
  store(kIpAt + 10, 0, 2);
  uint32_t sum = 0;
  for (size_t at = kIpAt; at < kUdpAt; at += 2) sum += static_cast<uint32_t>(load(at, 2));
  sum = (sum & 0xffff) + (sum >> 16);
  store(kIpAt + 10, ~((sum & 0xffff) + (sum >> 16)) & 0xffff, 2);
}

void Forge::make_honest() {
  set_macs(facts_.sink, facts_.own.mac);
  if (size_ >= wire::kEthernetBytes) store(12, 0x88b5, 2);
}

}  // namespace ina::hostile

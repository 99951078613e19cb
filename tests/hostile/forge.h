// Makes frames for attacks: well-formed ones by the project's own codec, and spoilt ones from them.
#pragma once

#include <array>
#include <cstring>
#include <span>

#include "tests/hostile/facts.h"

namespace ina::hostile {

/// SplitMix64 (Steele et al., 2014): the same frames for the same seed, and cheap.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t limit) { return next() % limit; }

 private:
  uint64_t state_;
};

class Forge {
 public:
  static constexpr size_t kMaxBytes = 2048;

  explicit Forge(Facts facts);

  const Facts& facts() const { return facts_; }
  /// `name` is a tenant's from now on.
  void set_tenant(const std::string& name, Tenant tenant) {
    facts_.tenants[name] = std::move(tenant);
  }
  const Tenant& tenant(const std::string& name) const { return facts_.tenants.at(name); }
  Random& random() { return random_; }
  const Worker& victim() { return facts_.victims[random_.below(facts_.victims.size())]; }

  std::span<std::byte> frame() { return {bytes_.data(), size_}; }
  void resize(size_t bytes);

  // A frame to begin with.

  /// A contribution of a whole fragment of int32: seq, epoch and bits as they are in `message`.
  static wire::Message grad(uint32_t epoch, uint32_t seq, Rank rank, uint32_t slot_bytes);
  /// An INA frame with `payload_bytes` bytes that mean nothing.
  void encode(const wire::Envelope& envelope, const wire::Message& message, size_t payload_bytes);
  /// From `rank` of an own job to the switch; payload as the message says, unless it is given.
  void from_tenant(const Tenant& tenant, uint32_t rank, const wire::Message& message);
  void from_tenant(const Tenant& tenant, uint32_t rank, const wire::Message& message,
                   size_t payload_bytes);
  /// A right frame of the victim's, keys included, but from `source`.
  void as_victim(const Worker& victim, const wire::Address& source);
  void capture(size_t number);
  /// Ethernet, IPv4 and UDP around bytes that mean nothing.
  void datagram(const wire::Address& from, const wire::Address& to, size_t payload_bytes);
  /// A broadcast ARP message: `from` says that it is there, and asks for `ip`.
  void arp(const wire::Address& from, uint32_t ip, uint16_t operation);

  // Edits that spoil the frame.

  void set_macs(const wire::MacAddress& destination, const wire::MacAddress& source);
  void set_source_ip(uint32_t ip);
  /// `value` in network byte order.
  void store(size_t at, uint64_t value, size_t bytes);
  uint64_t load(size_t at, size_t bytes) const;
  /// Makes the IPv4 header's checksum right again.
  void seal_ip();
  /// Makes the frame one of a protocol that nobody knows, to the sink: as long as before.
  void make_honest();

 private:
  Facts facts_;
  Random random_;
  std::array<std::byte, 1 << 16> noise_;
  std::array<std::byte, kMaxBytes> bytes_{};
  size_t size_ = 0;
};

}  // namespace ina::hostile

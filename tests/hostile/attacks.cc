#include "tests/hostile/attacks.h"

namespace ina::hostile {
namespace {

using wire::Message;
using wire::Type;

// Offsets in a frame without IPv4 options: docs/protocol.md.
constexpr size_t kEthertypeAt = 12;
constexpr size_t kIpFragmentAt = 20;
constexpr size_t kIpProtocolAt = 23;
constexpr size_t kIpChecksumAt = 24;
constexpr size_t kUdpDestinationAt = 36;
constexpr size_t kUdpLengthAt = 38;
constexpr size_t kMagicAt = 42;
constexpr size_t kVersionAt = 44;
constexpr size_t kCrcAt = 102;

constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr uint16_t kUnboundUdpPort = 9;

wire::MacAddress random_mac(Forge& forge) {
  wire::MacAddress mac{};
  const uint64_t bits = forge.random().next();
  std::memcpy(mac.data(), &bits, mac.size());
  mac[0] = static_cast<uint8_t>((mac[0] & 0xfc) | 2);
  return mac;
}

/// The own address with a UDP port that no worker has.
wire::Address own(Forge& forge) {
  wire::Address address = forge.facts().own;
  address.udp_port = kUnboundUdpPort;
  return address;
}

/// A right frame of the victim's, but from the own address.
void right_frame(Forge& forge) {
  forge.as_victim(forge.victim(), own(forge));
}

Message grad(Forge& forge, const Tenant& tenant, uint64_t seq, uint32_t rank) {
  return Forge::grad(tenant.epoch, static_cast<uint32_t>(seq), Rank{static_cast<uint8_t>(rank)},
                     forge.facts().slot_bytes);
}

// ---- strangers: frames that are no INA frames, or damaged ones

/// Noise: a valid frame with some other bytes, or with another end.
void noise(Forge& forge, uint64_t i) {
  right_frame(forge);
  Random& random = forge.random();
  for (uint64_t changes = 1 + random.below(6); changes != 0; --changes)
    forge.store(random.below(114), random.next(), 1);
  if (i % 4 == 0) forge.resize(random.below(Forge::kMaxBytes));
}

void truncated(Forge& forge, uint64_t i) {
  right_frame(forge);
  const size_t bytes = forge.frame().size();
  switch (i % 4) {
    case 0:  // the end is missing
      return forge.resize(34 + forge.random().below(bytes - 35));
    case 1:  // the datagram is longer than the packet
      return forge.store(kUdpLengthAt, bytes - 34 + 1 + forge.random().below(1000), 2);
    case 2:  // shorter than its own header
      return forge.store(kUdpLengthAt, forge.random().below(8), 2);
    default:  // shorter than the INA header
      return forge.store(kUdpLengthAt, 8 + 3 + forge.random().below(69), 2);
  }
}

void other_protocols(Forge& forge, uint64_t i) {
  const wire::Address& to = forge.facts().switch_address;
  forge.datagram(own(forge), to, forge.random().below(1000));
  switch (i % 5) {
    case 0:
      return forge.store(kUdpDestinationAt, 53, 2);
    case 1:
      return forge.store(kMagicAt, 0, 2);
    case 2:  // to the switch's MAC address, but no IPv4
      return forge.store(kEthertypeAt, 0x86dd, 2);
    case 3:
      return forge.store(kEthertypeAt, 0x8100, 2);
    default:
      forge.store(kIpProtocolAt, 6, 1);
      return forge.seal_ip();
  }
}

/// Half of them end early. The others a kernel that stands before the switch keeps, waiting for the
/// rest.
void ip_fragments(Forge& forge, uint64_t i) {
  right_frame(forge);
  forge.store(kIpFragmentAt, i / 2 % 2 == 0 ? 0x2000 : 1 + forge.random().below(0x1fff), 2);
  forge.seal_ip();
  if (i % 2 == 0) forge.resize(forge.frame().size() - 1 - forge.random().below(1000));
}

void ip_checksum(Forge& forge, uint64_t) {
  right_frame(forge);
  forge.store(kIpChecksumAt, forge.load(kIpChecksumAt, 2) ^ (1 + forge.random().below(0xfffe)), 2);
}

void version(Forge& forge, uint64_t) {
  right_frame(forge);
  forge.store(kVersionAt, 1 + wire::kProtocolVersion + forge.random().below(250), 1);
}

// ---- strangers: valid frames of unknown senders

/// Any job, any key, any epoch, any fragment.
void unknown(Forge& forge, uint64_t) {
  Random& random = forge.random();
  const wire::Envelope envelope{.source = own(forge),
                                .destination = forge.facts().switch_address,
                                .job = JobId{static_cast<uint32_t>(random.below(16))},
                                .job_key = random.next()};
  const Rank rank{static_cast<uint8_t>(random.below(4))};
  const Message message =
      Forge::grad(static_cast<uint32_t>(random.next()), static_cast<uint32_t>(random.next()), rank,
                  forge.facts().slot_bytes);
  forge.encode(envelope, message, forge.facts().slot_bytes);
}

/// The victim's job and key from the own address.
void stolen_key(Forge& forge, uint64_t) {
  right_frame(forge);
}

/// All of a victim's addresses, its job and its key, from the wrong port; or all but one.
void spoofed(Forge& forge, uint64_t i) {
  const Worker& victim = forge.victim();
  wire::Address source = victim.address;
  if (i % 4 == 1) source.mac = forge.facts().own.mac;
  if (i % 4 == 2) source.ip = forge.facts().own.ip;
  if (i % 4 == 3) ++source.udp_port;
  forge.as_victim(victim, source);
}

void replay(Forge& forge, uint64_t i) {
  forge.capture(i);
}

void replay_from_own(Forge& forge, uint64_t i) {
  forge.capture(i);
  wire::MacAddress destination;
  std::memcpy(destination.data(), forge.frame().data(), destination.size());
  forge.set_macs(destination, forge.facts().own.mac);
  forge.set_source_ip(forge.facts().own.ip);
}

// ---- strangers: towards the victims' hosts

/// Results and polls that the switch is said to have sent, with all that makes them right but the
/// port that they come from; or from the own address; or with a key made up.
void forged_results(Forge& forge, uint64_t i) {
  const Worker& victim = forge.victim();
  wire::Envelope envelope{.source = forge.facts().switch_address,
                          .destination = victim.address,
                          .job = victim.job,
                          .job_key = victim.key};
  if (i % 4 >= 1) envelope.source.mac = forge.facts().own.mac;
  if (i % 4 >= 2) envelope.source.ip = forge.facts().own.ip;
  if (i % 4 == 3) envelope.job_key = forge.random().next();
  Message message =
      Forge::grad(victim.epoch, static_cast<uint32_t>(victim.seq + forge.random().below(1 << 20)),
                  Rank{0}, forge.facts().slot_bytes);
  message.type = i / 4 % 2 == 0 ? Type::kResult : Type::kPoll;
  message.origin = i / 8 % 2 == 0 ? wire::Origin::kSwitch : wire::Origin::kFallback;
  message.phase = wire::Phase::kBind;
  message.bitmap = WorkerSet::first(2);
  forge.encode(envelope, message, wire::payload_bytes(message));
}

/// Datagrams to the very sockets of the victims, from the own address.
void flood_victims(Forge& forge, uint64_t) {
  forge.datagram(own(forge), forge.victim().address, 1024);
}

// ---- strangers: the network around

wire::Address taken_address(Forge& forge, uint64_t i) {
  return i % 3 == 0 ? forge.facts().kernel : forge.victim().address;
}

/// "I am the victim, and the switch's own machine": frames for them would come here.
void mac_theft(Forge& forge, uint64_t i) {
  forge.datagram(taken_address(forge, i), forge.facts().own, 18);
  forge.set_macs(i % 2 == 0 ? forge.facts().sink : forge.facts().own.mac,
                 taken_address(forge, i / 2).mac);
}

/// "Their IP addresses, and the switch's, are at my MAC address".
void arp_poison(Forge& forge, uint64_t i) {
  wire::Address claimed = i % 4 == 3 ? forge.facts().switch_address : taken_address(forge, i);
  claimed.mac = forge.facts().own.mac;
  const uint32_t asked = i % 2 == 0 ? claimed.ip : forge.facts().kernel.ip;
  forge.arp(claimed, asked, i / 4 % 2 == 0 ? 1 : 2);
  if (i % 8 == 7) forge.set_macs(forge.victim().address.mac, claimed.mac);
}

void mac_flood(Forge& forge, uint64_t) {
  forge.datagram(own(forge), forge.facts().own, 18);
  forge.set_macs(forge.facts().sink, random_mac(forge));
}

void storm(Forge& forge, uint64_t i) {
  forge.datagram(own(forge), {{}, 0xffffffff, 9}, forge.random().below(1000));
  forge.set_macs(i % 2 == 0 ? kBroadcast : random_mac(forge), forge.facts().own.mac);
}

/// Frames that no switch passes on.
void bad_addresses(Forge& forge, uint64_t i) {
  forge.datagram(own(forge), forge.facts().own, 18);
  wire::MacAddress destination = forge.facts().sink;
  wire::MacAddress source = forge.facts().own.mac;
  if (i % 5 == 0) source = kBroadcast;
  if (i % 5 == 1) source = {};
  if (i % 5 == 2) source = forge.facts().switch_address.mac;
  if (i % 5 == 3) destination = {0x01, 0x80, 0xc2, 0, 0, static_cast<uint8_t>(i / 5 % 16)};
  if (i % 5 == 4) destination = source;
  forge.set_macs(destination, source);
}

void too_long(Forge& forge, uint64_t i) {
  const wire::Address& to = i % 2 == 0 ? forge.victim().address : forge.facts().switch_address;
  forge.datagram(own(forge), to, 1500);
}

/// Requests that the switch itself answers.
void questions(Forge& forge, uint64_t i) {
  const wire::Address& to = forge.facts().switch_address;
  if (i % 2 == 0) return forge.arp(forge.facts().own, to.ip, 1);
  forge.datagram(own(forge), to, 1000);
  forge.store(kIpProtocolAt, 1, 1);
  forge.seal_ip();
  forge.store(34, 0x0800'0000, 4);
}

// ---- tenants: frames of bound workers, with the right job and key

void bad_crc(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("plain");
  forge.from_tenant(tenant, 0, grad(forge, tenant, i, 0));
  forge.store(kCrcAt, forge.load(kCrcAt, 4) ^ (1 + forge.random().below(0xfffffffe)), 4);
}

void malformed(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("plain");
  Random& random = forge.random();
  Message message = grad(forge, tenant, i % tenant.window, 0);
  size_t payload_bytes = forge.facts().slot_bytes;
  const auto choose = [&](uint8_t low, uint8_t high) {
    return static_cast<uint8_t>(low + random.below(high - low + 1u));
  };
  switch (i % 10) {
    case 0:
      message.type = Type{choose(14, 255)};
      break;
    case 1:  // what the switch alone says
      message.type = random.below(2) == 0 ? Type::kParked : Type::kStale;
      payload_bytes = 0;
      break;
    case 2:
      message.dtype = DType{choose(std::size(kAllDTypes) + 1, 255)};
      break;
    case 3:
      message.op = Op{choose(std::size(kAllOps) + 1, 255)};
      break;
    case 4:
      message.op = Op::kAvg;
      break;
    case 5:
      message.elements = static_cast<uint16_t>(random.next());
      break;
    case 6:
      payload_bytes = random.below(1400);
      break;
    case 7:
      message.rank = Rank{choose(65, 255)};
      break;
    case 8:
      message.origin = wire::Origin{choose(4, 255)};
      break;
    default:
      message.phase = wire::Phase{choose(3, 255)};
  }
  forge.from_tenant(tenant, 0, message, payload_bytes);
}

void other_jobs(Forge& forge, uint64_t i) {
  Tenant tenant = forge.tenant("plain");
  const Worker& victim = forge.victim();
  if (i % 3 != 0) tenant.job = victim.job;
  if (i % 3 != 1) tenant.key = i % 2 == 0 ? victim.key : forge.random().next();
  forge.from_tenant(tenant, 0, grad(forge, tenant, victim.seq, 0));
}

void epochs(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("plain");
  Message message = grad(forge, tenant, i % tenant.window, 0);
  const auto by = static_cast<uint32_t>(1 + forge.random().below(1 << 12));
  message.epoch = i % 2 == 0 ? tenant.epoch - by : tenant.epoch + by;
  forge.from_tenant(tenant, 0, message);
}

/// A job that goes on, whose workers repeat themselves and name fragments far behind and ahead.
void sequence(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("plain");
  const uint64_t seq = i / 8;
  const uint64_t window = tenant.window;
  const auto rank = static_cast<uint32_t>(i % 2);
  uint64_t claimed = seq;
  switch (i / 2 % 4) {
    case 2:
      claimed = seq >= 3 * window ? seq - 3 * window + forge.random().below(window) : seq;
      break;
    case 3:
      claimed = seq + 2 * window + forge.random().below(uint64_t{1} << 31);
      break;
    default:
      break;
  }
  forge.from_tenant(tenant, rank, grad(forge, tenant, claimed, rank));
}

/// One worker of two says that it is both, and all others.
void forged_ranks(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("lone");
  Message message = grad(forge, tenant, i / 2 % tenant.window, 0);
  message.rank = Rank{static_cast<uint8_t>(i % 65)};
  message.bitmap = i % 2 == 0 ? WorkerSet::first(kMaxWorkers) : WorkerSet::of(Rank{1});
  forge.from_tenant(tenant, 0, message);
}

/// Says what only a fragment's fallback may say.
void not_home(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("plain");
  Message message = grad(forge, tenant, 2 * i + 1, 0);  // odd fragments are at home at rank 1
  constexpr Type kTypes[] = {Type::kResult, Type::kPoll, Type::kRemind};
  message.type = kTypes[i % 3];
  message.origin = wire::Origin::kFallback;
  forge.from_tenant(tenant, 0, message);
}

/// The fallback of a job of many workers says one thing, and all of them hear it.
void amplify(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("wide");
  Message message = grad(forge, tenant, 0, 0);
  message.type = i % 2 == 0 ? Type::kResult : Type::kPoll;
  message.origin = wire::Origin::kFallback;
  message.phase = wire::Phase::kStatus;
  message.seq = 0;
  forge.from_tenant(tenant, 0, message);
}

/// Questions between workers and their fallback, in masses.
void asks(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("wide");
  Message message = grad(forge, tenant, i % tenant.window, 1);
  constexpr Type kTypes[] = {Type::kQuery, Type::kSent, Type::kNotYet, Type::kHave, Type::kDefer};
  message.type = kTypes[i % 5];
  forge.from_tenant(tenant, 1, message);
}

/// Two workers call different operations, and go on. The job is gone with that: once is enough.
void mismatch(Forge& forge, uint64_t i) {
  const Tenant& tenant = forge.tenant("doomed");
  const auto rank = static_cast<uint32_t>(i % 2);
  Message message = grad(forge, tenant, i / 2, rank);
  message.operation = rank;
  forge.from_tenant(tenant, rank, message);
}

constexpr Attack kAttacks[] = {
    {"noise", "", noise},
    {"truncated", "", truncated},
    {"other_protocols", "", other_protocols},
    {"ip_fragments", "", ip_fragments},
    {"ip_checksum", "", ip_checksum},
    {"version", "", version},
    {"unknown", "", unknown},
    {"stolen_key", "", stolen_key},
    {"spoofed", "", spoofed},
    {"replay", "", replay},
    {"replay_from_own", "", replay_from_own},
    {"forged_results", "", forged_results},
    {"flood_victims", "", flood_victims},
    {"mac_theft", "", mac_theft},
    {"arp_poison", "", arp_poison},
    {"mac_flood", "", mac_flood},
    {"storm", "", storm},
    {"bad_addresses", "", bad_addresses},
    {"too_long", "", too_long},
    {"questions", "", questions},
    {"bad_crc", "plain", bad_crc},
    {"malformed", "plain", malformed},
    {"other_jobs", "plain", other_jobs},
    {"epochs", "plain", epochs},
    {"sequence", "plain", sequence},
    {"not_home", "plain", not_home},
    {"forged_ranks", "lone", forged_ranks},
    {"amplify", "wide", amplify},
    {"asks", "wide", asks},
    {"mismatch", "doomed", mismatch},
};

}  // namespace

std::span<const Attack> attacks() {
  return kAttacks;
}

}  // namespace ina::hostile

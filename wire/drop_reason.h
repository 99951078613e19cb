// The reasons for dropping a packet. One entry gives the enumerator, the counter and the name that
// users see.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

// X(enumerator, counter_name, what_it_means)
#define INA_DROP_REASONS(X)                                                           \
  /* frame: found by the codec */                                                     \
  X(kTruncated, "truncated", "shorter than its headers or its stated payload")        \
  X(kNotIna, "not_ina", "not an INA frame: ethertype, protocol, UDP port or magic")   \
  X(kIpFragment, "ip_fragment", "fragmented IPv4 datagram")                           \
  X(kIpChecksum, "ip_checksum", "IPv4 header checksum does not match")                \
  X(kUdpChecksum, "udp_checksum", "UDP checksum does not match, says the device")     \
  X(kVersion, "version", "protocol version not spoken here")                          \
  X(kCrc, "crc", "CRC32C over header and payload does not match")                     \
  /* message: found by validation */                                                  \
  X(kBadType, "bad_type", "message type unknown, or not one that this side receives") \
  X(kBadDtype, "bad_dtype", "data type unknown")                                      \
  X(kBadOp, "bad_op", "operation unknown, or undefined for the data type")            \
  X(kBadLength, "bad_length", "element count, payload length and slot size disagree") \
  X(kBadRank, "bad_rank", "rank or bitmap does not belong to the job")                \
  X(kBadOffset, "bad_offset", "payload lies outside the sender's memory")             \
  /* binding: who may say it */                                                       \
  X(kUnknownSource, "unknown_source", "no worker is bound to this port and address")  \
  X(kBadJob, "bad_job", "job identifier or job key does not match the binding")       \
  X(kBadTag, "bad_tag", "tag is not what the keys of the worker make of the frame")   \
  X(kStaleEpoch, "stale_epoch", "older epoch of the job")                             \
  X(kFutureEpoch, "future_epoch", "epoch that the job has not reached")               \
  /* protocol */                                                                      \
  X(kTooOld, "too_old", "key at or below the job's floor")                            \
  X(kOutsideWindow, "outside_window", "key further ahead than the window allows")     \
  X(kWrongLane, "wrong_lane", "fragment does not belong to the lane it came in on")   \
  X(kDuplicate, "duplicate", "contribution already counted")                          \
  X(kNotHome, "not_home", "said by one that is not the fragment's fallback")          \
  X(kOldInstance, "old_instance", "said by an earlier life of the fallback")          \
  X(kMismatch, "mismatch", "operation differs between the workers of a job")          \
  X(kJobAborted, "job_aborted", "the job was aborted and waits to be removed")        \
  /* lanes */                                                                         \
  X(kHandOverFull, "handover_full", "the ring to the lane that it was for is full")   \
  /* bridge: not for the switch, and not to be passed on */                           \
  X(kAsked, "asked", "more ARP and ICMP echo than the port answers in a second")      \
  X(kVlan, "vlan", "VLAN that the port is no member of")                              \
  X(kBadMac, "bad_mac", "source address is a group's, zero, or the switch's own")     \
  X(kForeignSource, "foreign_source",                                                 \
    "source address of the switch, or of no host of the port's list")                 \
  X(kLinkLocal, "link_local", "group address that no switch passes on")               \
  X(kSamePort, "same_port", "destination lies behind the port that it came in by")    \
  X(kNoPort, "no_port", "no other port has a link")                                   \
  X(kStorm, "storm", "more broadcast or unknown destinations than the port may send") \
  X(kBlocked, "blocked", "came in by a port that is blocked, as part of a loop")      \
  /* output */                                                                        \
  X(kTooLong, "too_long", "longer than the port's mtu allows")                        \
  X(kTxFull, "tx_full", "receiver's ring or the port's queue is full")                \
  X(kNoBuffer, "no_buffer", "no packet buffer is free")

namespace ina {

enum class DropReason : uint8_t {
#define INA_X(enumerator, counter, text) enumerator,
  INA_DROP_REASONS(INA_X)
#undef INA_X
};

inline constexpr size_t kDropReasons = 0
#define INA_X(enumerator, counter, text) +1
    INA_DROP_REASONS(INA_X)
#undef INA_X
    ;

/// Counter name, e.g. "bad_dtype".
std::string_view name(DropReason reason);
/// One line that says what the reason means.
std::string_view describe(DropReason reason);

/// Drops by reason. One thread owns the object; other threads get a copy from that thread.
struct DropCounters {
  std::array<uint64_t, kDropReasons> count{};
  void add(DropReason reason) { ++count[static_cast<size_t>(reason)]; }
  void add(const DropCounters& more) {
    for (size_t i = 0; i < kDropReasons; ++i) count[i] += more.count[i];
  }
  uint64_t operator[](DropReason reason) const { return count[static_cast<size_t>(reason)]; }
};

}  // namespace ina

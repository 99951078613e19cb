// The fate of a packet, and the messages that are sent because of it.
#pragma once

#include <array>
#include <span>

#include "aggregator/packet.h"
#include "wire/message.h"

namespace ina::aggregator {

/// A message to send because of a packet. Its payload stays as it is until the next burst if it
/// lies in a value row or in the packet, and as the job's window says if it lies in the result
/// ring.
struct Emission {
  /// kHolders: the workers in message.bitmap; kWorker: `worker`
  enum class To : uint8_t { kSender, kAll, kHolders, kWorker, kFallback };
  To to{};
  Rank worker{};
  JobIndex job = 0;  ///< a victim's may be another than the packet's
  wire::Message message;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
};

/// The fate of a packet (I5: exactly one of these) and the messages to be sent because of it.
struct alignas(64) Verdict {
  enum class Fate : uint8_t { kAbsorbed, kForwarded, kDropped };

  Fate fate = Fate::kDropped;
  uint8_t emissions = 0;
  DropReason reason{};
  // For reason kMismatch: the other side.
  Rank first_rank{};
  wire::Signature first_signature;
  std::array<Emission, 2> emission;

  std::span<const Emission> to_send() const { return std::span(emission).first(emissions); }
  /// Adds a message without contents. A verdict has room for two.
  Emission& add(Emission::To to, JobIndex job) {
    Emission& added = emission[emissions++];
    added.to = to;
    added.job = job;
    added.message = wire::Message{};
    added.payload = nullptr;
    added.payload_bytes = 0;
    return added;
  }
};

}  // namespace ina::aggregator

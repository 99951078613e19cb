// Hostile input: frames changed at random (seeded) must be parsed or refused, never misread. Run
// under AddressSanitizer it also proves that nothing outside the frame is read.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>

#include "tests/support/packet_builder.h"
#include "wire/frame.h"

namespace ina {
namespace {

using testing::Bytes;
using testing::PacketBuilder;

constexpr int kIterations = 200'000;

std::vector<Bytes> seeds() {
  using wire::Type;
  return {
      PacketBuilder().elements(256).build(),
      PacketBuilder().elements(0).build(),
      PacketBuilder().dtype(DType::kInt8).elements(33).type(Type::kPart).build(),
      PacketBuilder().dtype(DType::kBFloat16).elements(7).type(Type::kResult).build(),
      PacketBuilder().type(Type::kStale).padding(30).build(),
      PacketBuilder().elements(9).ip_options(4).build(),
      PacketBuilder().elements(9).vlan(7).build(),
  };
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  Bytes next() {
    Bytes frame = seeds_[below(seeds_.size())];
    for (size_t changes = below(4) + 1; changes > 0; --changes) change(frame);
    // Half of the time what guards the inner layers is made right, so that they are reached.
    if (below(2)) testing::fix_crc(frame);
    if (below(4)) testing::fix_ip_checksum(frame);
    return frame;
  }

 private:
  size_t below(size_t n) { return random_() % n; }

  void change(Bytes& frame) {
    if (frame.empty()) return;
    switch (below(7)) {
      case 0:
        frame[below(frame.size())] ^= static_cast<std::byte>(1 << below(8));
        break;
      case 1:
        frame[below(frame.size())] = static_cast<std::byte>(below(256));
        break;
      case 2:
        frame.resize(below(frame.size() + 1));
        break;
      case 3:
        frame.insert(frame.end(), below(64), static_cast<std::byte>(below(256)));
        break;
      case 4: {  // a length
        const size_t at = below(2) ? testing::kIpTotalLengthAt : testing::kUdpLengthAt;
        if (frame.size() >= at + 2)
          testing::put_be16(frame, at, static_cast<uint16_t>(below(2) ? below(2048) : random_()));
        break;
      }
      case 5: {  // a stretch of another frame
        const Bytes& other = seeds_[below(seeds_.size())];
        const size_t at = below(std::min(frame.size(), other.size()));
        const size_t count = below(std::min(frame.size(), other.size()) - at + 1);
        std::copy_n(other.begin() + static_cast<ptrdiff_t>(at), count,
                    frame.begin() + static_cast<ptrdiff_t>(at));
        break;
      }
      case 6: {  // a byte of the INA header
        const size_t at = testing::kInaAt + below(wire::kInaHeaderBytes);
        if (at < frame.size()) frame[at] = static_cast<std::byte>(random_());
        break;
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<Bytes> seeds_ = seeds();
};

/// The properties of every accepted frame.
void check_accepted(const wire::Frame& frame, std::span<const std::byte> bytes) {
  const std::byte* end = bytes.data() + bytes.size();
  ASSERT_GE(frame.payload, bytes.data() + wire::kFrameHeaderBytes);
  ASSERT_LE(frame.payload + frame.payload_bytes, end);
  const std::span payload(frame.payload, frame.payload_bytes);
  const auto reason = wire::validate(frame.message, frame.payload_bytes, 1024);
  if (!reason) {
    ASSERT_EQ(frame.payload_bytes, wire::payload_bytes(frame.message));
    ASSERT_LE(frame.payload_bytes, 1024u);
    ASSERT_LE(value(frame.message.rank), kMaxWorkers);
  }
  // Encoded again, a valid frame gives the same INA header. There are 64 lanes.
  const auto lane = std::to_integer<uint32_t>(*(frame.payload - wire::kInaHeaderBytes + 54));
  if (reason || lane >= 64) return;
  Bytes again(wire::kFrameHeaderBytes);
  ASSERT_EQ(wire::encode_headers(frame.envelope, frame.message, payload, again), again.size());
  ASSERT_TRUE(std::equal(again.begin() + testing::kInaAt, again.end(),
                         frame.payload - wire::kInaHeaderBytes));
}

TEST(FrameMutation, NeverMisbehaves) {
  Mutator mutator(20240607);
  size_t accepted = 0;
  size_t valid = 0;
  std::array<size_t, kDropReasons> dropped{};
  for (int i = 0; i < kIterations; ++i) {
    SCOPED_TRACE(i);
    const Bytes frame = mutator.next();
    const auto memory = std::make_unique<std::byte[]>(frame.size());  // ends where the frame ends
    std::copy(frame.begin(), frame.end(), memory.get());
    const std::span<const std::byte> bytes(memory.get(), frame.size());
    const auto parsed = wire::parse_frame(bytes, wire::kDefaultUdpPort, 16);
    if (!parsed) {
      ++dropped.at(static_cast<size_t>(parsed.error()));
      continue;
    }
    ++accepted;
    valid += !wire::validate(parsed->message, parsed->payload_bytes, 1024);
    check_accepted(*parsed, bytes);
    if (HasFatalFailure()) return;
  }
  // The mutations reach every layer: no reason of the codec's goes unseen, and many frames pass it.
  for (auto reason = DropReason::kTruncated; reason <= DropReason::kCrc;
       reason = static_cast<DropReason>(static_cast<int>(reason) + 1))
    if (reason != DropReason::kUdpChecksum) {  // the device's to say
      EXPECT_GT(dropped[static_cast<size_t>(reason)], 100u) << name(reason);
    }
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(valid, 1000u);
  EXPECT_LT(valid, accepted);
}

TEST(FrameMutation, RandomBytesAreRefused) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const size_t size = random() % 200;
    const auto memory = std::make_unique<std::byte[]>(size);
    for (size_t at = 0; at < size; ++at) memory[at] = static_cast<std::byte>(random());
    EXPECT_FALSE(wire::parse_frame({memory.get(), size}, 0, 0));
  }
}

}  // namespace
}  // namespace ina

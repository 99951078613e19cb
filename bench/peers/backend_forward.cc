// No library: the limit that the path between the hosts sets. Ranks in pairs, 0 and 1, 2 and 3,
// ..., send each other the frames of an all-reduce of theirs, through the same transports as ours,
// and the switch forwards them as it forwards anything. So hosts and switch handle as many frames
// of the same size as in an all-reduce, and nothing is added.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "bench/peers/backend.h"
#include "common/clock.h"
#include "common/idle.h"
#include "fragments/engine.h"
#include "transport/frame_transport.h"

namespace ina::peers {
namespace {

constexpr Nanos kStartTimeoutNs = 30'000'000'000;
/// Frames that have not come count as lost when none has come for so long.
constexpr Nanos kLostAfterNs = 20'000'000;
constexpr Nanos kSleepNs = 5'000'000;

template <class T>
T require(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text);
  return std::move(*result);
}

/// Each rank writes its address to a file; whole at once, by its new name.
void publish(const std::filesystem::path& file, const wire::Address& address) {
  const std::filesystem::path unfinished = file.string() + ".new";
  std::ofstream out(unfinished);
  for (const uint8_t byte : address.mac) out << int{byte} << ' ';
  out << address.ip << ' ' << address.udp_port << '\n';
  out.close();
  std::filesystem::rename(unfinished, file);
}

wire::Address await_address(const std::filesystem::path& file) {
  const Nanos deadline = now_ns() + kStartTimeoutNs;
  while (!std::filesystem::exists(file)) {
    if (now_ns() > deadline) throw std::runtime_error("no partner within 30 s: " + file.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  wire::Address address;
  std::ifstream in(file);
  for (uint8_t& byte : address.mac) {
    int number = 0;
    in >> number;
    byte = static_cast<uint8_t>(number);
  }
  in >> address.ip >> address.udp_port;
  if (!in) throw std::runtime_error("no address in " + file.string());
  return address;
}

class ForwardBackend : public Backend {
 public:
  explicit ForwardBackend(const Place& place) : place_(place) {
    if (place.ranks % 2 != 0) throw std::runtime_error("ranks must be even to be in pairs");
    transport_ = require(
        client::open_frame_transport(require(client::parse_url(place.url)), kStartTimeoutNs));
    if (transport_->max_slot_bytes() < place.slot_bytes)
      throw std::runtime_error("slots do not fit the frames of " + place.url);
    const auto file = [&](int rank) {
      return std::filesystem::path(place.rendezvous) / ("address-" + std::to_string(rank));
    };
    publish(file(place.rank), transport_->address());
    client::FrameBinding binding;
    binding.own = transport_->address();
    binding.switch_address = await_address(file(place.rank ^ 1));
    binding.job = JobId{1};
    binding.slot_bytes = place.slot_bytes;
    transport_->bind(binding);
  }

  int rank() const override { return place_.rank; }
  int ranks() const override { return place_.ranks; }
  std::string version() const override { return "forwarding"; }
  std::vector<std::string> modes(perf::Collective collective) override {
    if (collective != perf::Collective::kAllreduce) return {};
    return {"plain"};
  }

  Buffers allocate(const std::string&, const Operation& operation) override {
    count_ = operation.whole;
    buffers_.allocate(count_, count_);
    return {buffers_.send(), buffers_.recv()};
  }
  void release() override { buffers_.release(); }

  void run() override {
    const size_t per_frame = place_.slot_bytes / sizeof(float);
    const auto fragments = static_cast<uint32_t>((count_ + per_frame - 1) / per_frame);
    uint32_t sent = 0;
    uint32_t received = 0;
    uint32_t lost = 0;
    Nanos last_progress = now_ns();
    idle_.reset();
    while (received + lost < fragments) {
      const uint32_t arrived = receive();
      received += arrived;
      const uint32_t end = std::min(fragments, received + lost + place_.window);
      const uint32_t taken = sent < end ? send(sent, end, per_frame) : 0;
      sent += taken;
      if (arrived + taken != 0) {
        last_progress = now_ns();
        idle_.reset();
        continue;
      }
      const Nanos now = now_ns();
      if (now - last_progress > kLostAfterNs) {
        lost = sent - received;
        last_progress = now;
      } else if (idle_.idle(now) == IdleStrategy::Step::kSleep) {
        transport_->wait(kSleepNs);
      }
    }
    first_ += fragments;
  }

 private:
  /// How many of this operation came.
  uint32_t receive() {
    client::RxPacket packets[client::Engine::kBurst];
    const size_t count = transport_->rx_burst(packets);
    uint32_t arrived = 0;
    for (size_t i = 0; i < count; ++i)
      if (static_cast<int32_t>(packets[i].message.seq - first_) >= 0) ++arrived;
    transport_->rx_release();
    return arrived;
  }

  /// Sends a burst of the fragments from `from` to `end`; returns how many went.
  uint32_t send(uint32_t from, uint32_t end, size_t per_frame) {
    client::TxPacket packets[client::Engine::kBurst];
    const size_t count = std::min<size_t>(end - from, client::Engine::kBurst);
    for (size_t i = 0; i < count; ++i) {
      const size_t first = (from + i) * per_frame;
      const size_t elements = std::min(per_frame, count_ - first);
      wire::Message message;
      message.type = wire::Type::kGrad;
      message.dtype = DType::kFloat32;
      message.op = Op::kSum;
      message.collective = Collective::kAllReduce;
      message.operation_elements = count_;
      message.elements = static_cast<uint16_t>(elements);
      message.seq = first_ + from + static_cast<uint32_t>(i);
      packets[i] = {message, reinterpret_cast<const std::byte*>(buffers_.send() + first),
                    static_cast<uint32_t>(elements * sizeof(float))};
    }
    return static_cast<uint32_t>(transport_->tx_burst({packets, count}));
  }

  const Place place_;
  std::unique_ptr<client::FrameTransport> transport_;
  PlainBuffers buffers_;
  uint64_t count_ = 0;
  IdleStrategy idle_{IdleMode::kAuto};
  uint32_t first_ = 0;  ///< of the operation's fragments
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Place& place) {
  return std::make_unique<ForwardBackend>(place);
}

}  // namespace ina::peers

#include "tests/siege/raw_worker.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <stdexcept>

namespace ina::siege {

using namespace io::shm;

namespace {

constexpr Nanos kTimeoutNs = 5'000'000'000;

template <class T>
T or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text);
  return std::move(*result);
}

control::Heard next_of(const control::Connection& connection) {
  auto answer = or_throw(control::hear(connection, kTimeoutNs));
  if (!answer) throw std::runtime_error("the switch does not answer");
  return std::move(*answer);
}

/// Memory like a worker's own, but for the seal that keeps it whole.
Region make_unsealed(size_t bytes) {
  Region region;
  region.fd = Fd(::memfd_create("ina-siege", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!region.fd || ::ftruncate(region.fd.get(), static_cast<off_t>(bytes)) != 0)
    throw std::runtime_error("no memory file could be made");
  void* map =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, region.fd.get(), 0);
  if (map == MAP_FAILED) throw std::runtime_error("no memory could be mapped");
  region.map = Mapping(static_cast<std::byte*>(map), bytes);
  ::fcntl(region.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return region;
}

}  // namespace

RawWorker::RawWorker(const std::string& socket, const std::string& name, bool sealed)
    : control_(or_throw(control::Connection::open(socket, kTimeoutNs))) {
  join(name);
  if (!sealed) {
    unsealed_taken_ = attach(false);
    if (unsealed_taken_) return;
    // A refusal may have cost the connection.
    control_ = or_throw(control::Connection::open(socket, kTimeoutNs));
    join(name + "-sealed");
  }
  if (!attach(true)) throw std::runtime_error("the switch takes no worker region");
}

void RawWorker::join(const std::string& name) {
  control::request::Join join;
  join.window_bytes = 64 << 10;
  join.member.version = control::kControlVersion;
  join.member.job = name;
  join.member.world_size = 1;
  if (const auto sent = control::say(control_, join); !sent)
    throw std::runtime_error(sent.error().text);
  control::Heard heard = next_of(control_);
  const auto* joined = std::get_if<control::answer::Joined>(&heard.message);
  if (!joined || !joined->place.shm)
    throw std::runtime_error("cannot join: " + control::error_of(heard.message).text);
  const control::answer::Place& place = joined->place;
  geometry_ = {place.lanes,      place.shm->tx_depth,    place.shm->rx_depth,
               place.slot_bytes, place.shm->result_rows, place.shm->side_rows};
  epoch_ = place.epoch;
  switch_region_ =
      or_throw(map_peer_region(heard.fds.at(0), SwitchLayout(geometry_).bytes, "switch region"));
  wake_events_.assign(std::make_move_iterator(heard.fds.begin() + 2),
                      std::make_move_iterator(heard.fds.end()));
  doorbell_ = at<SleepFlag>(static_cast<const std::byte*>(switch_region_.data()),
                            SwitchLayout(geometry_).doorbell);
  tx_index_.assign(lanes(), 0);
  rx_index_.assign(lanes(), 0);
  next_ = 0;
}

/// False: refused.
bool RawWorker::attach(bool sealed) {
  const WorkerLayout layout(geometry_);
  own_ = sealed ? or_throw(make_region("ina-siege", layout.bytes)) : make_unsealed(layout.bytes);
  sleeping_ = at<SleepFlag>(own_.map.data(), layout.sleeping);
  if (!control::say(control_, control::request::Attach{}, {own_.fd.get()})) return false;
  for (;;) {
    const auto heard = control::hear(control_, kTimeoutNs);
    if (!heard || !*heard) return false;
    const control::answer::Message& said = (*heard)->message;
    if (std::holds_alternative<control::answer::Ready>(said)) return true;
    if (std::holds_alternative<control::answer::Refused>(said) ||
        std::holds_alternative<control::answer::Abort>(said))
      return false;
  }
}

std::atomic<uint64_t>& RawWorker::rx_read(uint32_t lane) {
  return (at<Position>(own_.map.data(), WorkerLayout(geometry_).rx_read) + lane)->value;
}

uint64_t RawWorker::waiting(uint32_t lane) const {
  const std::byte* theirs = switch_region_.data();
  const auto* taken = at<Position>(theirs, SwitchLayout(geometry_).tx_read) + lane;
  return tx_index_[lane] - taken->value.load(std::memory_order_acquire);
}

Entry RawWorker::next_contribution() {
  Entry entry;
  wire::Message& message = entry.message;
  message.type = wire::Type::kGrad;
  message.bitmap = WorkerSet::of(Rank{0});
  message.seq = next_;
  message.operation = next_++;
  message.operation_elements = message.elements = 16;
  message.dtype = DType::kInt32;
  message.op = Op::kSum;
  message.collective = Collective::kAllReduce;
  message.priority = 1;
  message.epoch = epoch_;
  message.lane = message.seq % lanes() & 0xff;
  entry.payload_bytes = message.elements * sizeof(int32_t);
  const uint64_t row = tx_index_[message.lane] & (tx_depth() - 1);
  entry.payload_offset = WorkerLayout(geometry_).payload +
                         (uint64_t{message.lane} * tx_depth() + row) * geometry_.slot_bytes;
  return entry;
}

void RawWorker::put(uint32_t lane, const Entry& entry) {
  auto* ring =
      at<Descriptor>(own_.map.data(), WorkerLayout(geometry_).tx_ring) + size_t{lane} * tx_depth();
  Descriptor& place = ring[tx_index_[lane] & (tx_depth() - 1)];
  place.message = entry.message;
  place.payload_offset = entry.payload_offset;
  place.payload_bytes = entry.payload_bytes;
  place.turn.store(turn_of(tx_index_[lane]++, tx_depth()), std::memory_order_release);
}

void RawWorker::ring(bool all) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::byte* theirs = switch_region_.data();
  const auto* asleep = at<SleepFlag>(theirs, SwitchLayout(geometry_).sleeping);
  for (uint32_t lane = 0; lane < lanes(); ++lane) {
    if (!all && asleep[lane].value.load(std::memory_order_relaxed) == 0) continue;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_events_[lane].get(), &one, sizeof(one));
  }
}

uint64_t RawWorker::take_results() {
  const std::byte* theirs = switch_region_.data();
  uint64_t taken = 0;
  for (uint32_t lane = 0; lane < lanes(); ++lane) {
    const auto* ring =
        at<Descriptor>(theirs, SwitchLayout(geometry_).rx_ring) + size_t{lane} * geometry_.rx_depth;
    const auto filled = [&] {
      return ring[rx_index_[lane] & (geometry_.rx_depth - 1)].turn.load(
                 std::memory_order_acquire) == turn_of(rx_index_[lane], geometry_.rx_depth);
    };
    for (; filled(); ++taken) ++rx_index_[lane];
    rx_read(lane).store(rx_index_[lane], std::memory_order_release);
  }
  return taken;
}

bool RawWorker::hear() {
  for (;;) {
    const auto heard = control::hear(control_, 0);
    if (!heard) return false;
    if (!*heard) return true;
    const control::answer::Message& said = (*heard)->message;
    if (std::holds_alternative<control::answer::Abort>(said) ||
        std::holds_alternative<control::answer::Left>(said))
      return false;
  }
}

}  // namespace ina::siege

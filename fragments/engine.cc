#include "fragments/engine.h"

#include <utility>

#include "wire/rules.h"

namespace ina::client {

using wire::Message;
using wire::Type;

namespace {

/// This worker's shard, where the workers are home to the fallback.
std::optional<aggregator::Fallback> make_fallback(const EngineConfig& config) {
  if (config.rules.home != Home::kWorkers) return std::nullopt;
  aggregator::FallbackConfig fallback;
  fallback.workers = config.workers;
  fallback.window = config.window;
  fallback.slot_bytes = config.slot_bytes;
  fallback.lanes = config.lanes;
  fallback.shards = config.workers;
  fallback.shard = value(config.rank);
  fallback.epoch = config.epoch;
  fallback.bind_at_once = config.rules.fixed_slots();
  return std::optional<aggregator::Fallback>(std::in_place, fallback);
}

}  // namespace

Engine::Engine(const EngineConfig& config)
    : flow_(config),
      deadlines_(flow_),
      operations_(flow_),
      fallback_(make_fallback(config)),
      sending_(flow_, deadlines_, kBurst),
      recovery_(flow_, deadlines_),
      parking_(flow_, deadlines_),
      answers_(flow_, parking_),
      results_(flow_, {.deadlines = deadlines_,
                       .recovery = recovery_,
                       .parking = parking_,
                       .operations = operations_,
                       .fallback = fallback_ ? &*fallback_ : nullptr}) {}

Operation* Engine::submit(const OperationSpec& spec, Nanos now) {
  Operation* operation = operations_.submit(spec, now);
  sending_.add(*operation);
  return operation;
}

void Engine::release_hold(Operation* operation, const std::byte* send, uint64_t elements,
                          bool skip) {
  operation->spec.held = false;
  operation->spec.send = send;
  operation->spec.elements = elements;
  operation->cut(config().slot_bytes, config().rank);
  if (!skip) return;
  operation->fragments = 0;
  sending_.drop(*operation);
  operations_.note_complete(*operation);
}

void Engine::release(Operation* operation) {
  operations_.release(operation);
}

size_t Engine::prepare(std::span<TxPacket> packets, Nanos now) {
  if (now >= deadlines_.next()) recovery_.find_overdue(now);
  size_t count = 0;
  const auto rest = [&] { return packets.subspan(count); };
  count += prepared_.answers = answers_.prepare(packets);
  prepared_.fallback = fallback_ ? fallback_->prepare(rest()) : 0;
  for (TxPacket& packet : rest().first(prepared_.fallback)) flow_.flag_kept(packet);
  count += prepared_.fallback;
  count += prepared_.parked = parking_.prepare(rest());
  count += prepared_.overdue = recovery_.prepare(rest());
  count += prepared_.closings = sending_.prepare_closings(rest());
  return count + sending_.prepare_new(rest(), prepared_.closings, now);
}

void Engine::sent(size_t count, Nanos now) {
  flow_.counters.packets_sent += count;
  // In the order of prepare().
  const auto take = [&count](size_t& prepared) {
    const size_t taken = std::min(count, std::exchange(prepared, 0));
    count -= taken;
    return taken;
  };
  answers_.sent(take(prepared_.answers));
  if (const size_t of_fallback = take(prepared_.fallback); of_fallback != 0)
    fallback_->sent(of_fallback);
  parking_.sent(take(prepared_.parked));
  recovery_.sent(take(prepared_.overdue), now);
  sending_.closings_sent(take(prepared_.closings), now);
  const Seq first = flow_.ring.next();
  sending_.new_sent(count, now);
  parking_.make_room(first, flow_.ring.next());
}

size_t Engine::accept(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const Message& message = packet.message;
  if (message.type == Type::kPark ||
      (message.type == Type::kPart && message.origin == wire::Origin::kParker))
    return on_park(packet, now, jobs);
  switch (message.type) {
    case Type::kResult:
      return results_.accept(packet, now, jobs);
    case Type::kStale:
      set_epoch(message.epoch, now);
      return 0;
    case Type::kParked:
      parking_.on_parked(message, now);
      return 0;
    case Type::kPoll:
      on_poll(message, now);
      return 0;
    default:
      if (fallback_) return on_fallback_message(packet, now, jobs);
      ++flow_.counters.results_ignored;
      return 0;
  }
}

void Engine::on_poll(const Message& poll, Nanos now) {
  const Seq seq = flow_.ring.extended(poll.seq);
  // In a tree the switch also asks for contributions whose bare result has come.
  const bool done = config().in_tree() && !awaits(seq);
  if (poll.phase >= wire::Phase::kAgain && !done)
    recovery_.send_again(seq, poll.phase == wire::Phase::kLost, now);
  else
    answers_.on_poll(poll);
}

size_t Engine::on_park(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  RxPacket result;
  return parking_.on_park(packet, now, result) ? results_.accept(result, now, jobs) : 0;
}

/// With straggler help half of all results come from workers. A result decided here is taken at
/// once, and need not come back over this worker's link.
size_t Engine::on_fallback_message(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const uint64_t decided = fallback_->counters().decided;
  fallback_->on_message(packet.message, packet.payload);
  if (!flow_.keeps_results() || fallback_->counters().decided == decided ||
      !rule(Rule::kKeptResult))
    return 0;
  TxPacket result;
  if (!fallback_->result_of(flow_.ring.extended(packet.message.seq), result)) return 0;
  // Nobody else would miss it, should the switch not hear of it.
  if (result.message.receiver != 0) return 0;
  return results_.accept({result.message, result.payload, result.payload_bytes}, now, jobs);
}

void Engine::finish_operations(Nanos now) {
  const Seq before = low();
  flow_.ring.pass_done();
  const bool is_idle = low() == flow_.ring.next();
  if (config().lossy_link && low() != before && !is_idle) recovery_.probe_oldest(now);
  if (is_idle) deadlines_.look_at(kNever);
  operations_.finish(now);
}

void Engine::set_epoch(uint32_t epoch, Nanos now) {
  if (epoch <= config().epoch) return;
  flow_.config.epoch = epoch;
  if (fallback_) fallback_->set_epoch(epoch);
  deadlines_.forget_patience(now);
}

void Engine::rejoin(const EngineConfig& told, Nanos now) {
  flow_.play_by(told.rules);
  if (fallback_) fallback_->set_bind_at_once(config().rules.fixed_slots());
  rejoin(told.epoch, now);
}

void Engine::rejoin(uint32_t epoch, Nanos now) {
  if (config().results_stay) results_.keep_all();
  if (fallback_) fallback_->forget_targets();
  operations_.forget_targets();
  flow_.ring.forget_targets();
  set_epoch(epoch, now);
}

}  // namespace ina::client

#include "sim/switch.h"

#include <fmt/format.h>

namespace ina::sim {

namespace {

constexpr Nanos kParkingPauseNs = 20'000;
constexpr size_t kParkedAtOnce = 32;

}  // namespace

Switch::Switch(Fabric& fabric, const aggregator::Shape& shape, uint32_t rack)
    : fabric_(fabric),
      host_(rack == 0 ? fabric.add_switch(*this) : fabric.add_rack_switch(*this, rack)),
      rows_(lines_of(aggregator::Aggregator::row_memory_bytes(shape))),
      aggregator_(shape, std::span(data(rows_), rows_.size() * sizeof(Line))),
      domains_(aggregator_, 1),
      port_(fabric, host_, shape.slot_bytes),
      endpoints_(shape.max_jobs) {}

void Switch::bind(io::JobIndex job, JobId id, uint64_t key, std::span<const uint32_t> hosts,
                  uint32_t workers) {
  for (size_t i = 0; i < hosts.size(); ++i)
    endpoints_[job].push_back(port_.bind(
        hosts[i], id, key, job, i < workers ? Rank{static_cast<uint8_t>(i)} : kFallbackRank));
}

void Switch::add_job(io::JobIndex job, const aggregator::JobSpec& spec) {
  aggregator_.add_job(job, spec);
  watch_parking();
}

void Switch::arrived() {
  io::RxPacket packets[1];
  aggregator::Verdict verdicts[1];
  const auto to_port = [this](auto&&... what) { this->send(what...); };
  const auto send = domains_.through(to_port);
  const auto mismatch = [this](const io::RxPacket&, const aggregator::Verdict&) { ++mismatches_; };
  while (aggregator::serve(port_, aggregator_, packets, verdicts, fabric_.now(), send, mismatch))
    serve_roots();
  watch_joining();
}

void Switch::serve_roots() {
  aggregator::Verdict verdicts[1];
  const auto to_port = [this](auto&&... what) { this->send(what...); };
  const auto mismatch = [this](const io::RxPacket&, const aggregator::Verdict&) { ++mismatches_; };
  domains_.serve_roots(verdicts, fabric_.now(), to_port, mismatch);
}

void Switch::on_timer(uint64_t argument) {
  const auto to_port = [this](auto&&... what) { this->send(what...); };
  const auto send = domains_.through(to_port);
  if (argument == kJoin) {
    join_at_ = aggregator::BareResults::kNever;
    if (fabric_.now() >= aggregator_.bare_results().due())
      aggregator::send_bare_results(aggregator_, fabric_.now(), send);
    serve_roots();
    return watch_joining();
  }
  // Straggler help where nobody sends, because all wait for one.
  watching_ = false;
  aggregator::Verdict verdict;
  aggregator::park_overdue(aggregator_, verdict, kParkedAtOnce, fabric_.now(), send);
  serve_roots();
  watch_parking();
}

void Switch::send(io::JobIndex job, Rank rank, const aggregator::Emission& emission) {
  const auto& endpoints = endpoints_[job];
  const size_t at = rank == kFallbackRank ? endpoints.size() - 1 : value(rank);
  port_.tx(endpoints[at], emission.message, {emission.payload, emission.payload_bytes});
}

void Switch::watch_parking() {
  if (watching_ || !aggregator_.parking()) return;
  watching_ = true;
  fabric_.schedule(fabric_.now() + kParkingPauseNs, host_, kPark);
}

/// Results without payload wait for others to join them, but not for ever.
void Switch::watch_joining() {
  const Nanos due = aggregator_.bare_results().due();
  if (due >= join_at_) return;
  join_at_ = due;
  fabric_.schedule(due, host_, kJoin);
}

std::string Switch::problem_of_ledger() const {
  const aggregator::Counters& c = aggregator_.counters();
  if (c.packets != c.absorbed + c.marks + c.forwarded + c.dropped())
    return fmt::format("{} packets, {} absorbed, {} marks, {} forwarded, {} dropped", c.packets,
                       c.absorbed, c.marks, c.forwarded, c.dropped());
  const uint64_t held = aggregator_.contributions_held();
  const uint64_t gone =
      c.contributions_in_results + c.contributions_moved + c.contributions_discarded;
  if (c.absorbed + c.bypassed != held + gone)
    return fmt::format("{} contributions accepted, {} held, {} gone on", c.absorbed + c.bypassed,
                       held, gone);
  return {};
}

}  // namespace ina::sim

#include "switchd/reports/tracing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/logging/record.h"
#include "wire/text.h"

namespace ina::switchd {

namespace {

using Code = AdminError::Code;
using aggregator::Emission;
using aggregator::Verdict;
using control::Json;

tl::unexpected<AdminError> decline(Code code, std::string text) {
  return tl::unexpected(AdminError{code, std::move(text)});
}

const char* text_of(Verdict::Fate fate) {
  switch (fate) {
    case Verdict::Fate::kAbsorbed:
      return "absorbed";
    case Verdict::Fate::kForwarded:
      return "forwarded";
    case Verdict::Fate::kDropped:
      break;
  }
  return "dropped";
}

const char* text_of(Emission::To to) {
  switch (to) {
    case Emission::To::kSender:
      return "sender";
    case Emission::To::kAll:
      return "all";
    case Emission::To::kHolders:
      return "holders";
    case Emission::To::kWorker:
      return "worker";
    case Emission::To::kFallback:
      break;
  }
  return "fallback";
}

/// `ranks`: of the members of its domain.
Json packet_json(const TraceRecord& record, const std::vector<uint32_t>& ranks, uint32_t lane,
                 const std::string& port, Nanos began) {
  const auto those = [&](WorkerSet members) {
    std::vector<uint32_t> found;
    for (const Rank member : members)
      if (value(member) < ranks.size()) found.push_back(ranks[value(member)]);
    return found;
  };
  const wire::Message& message = record.message;
  const bool dropped = record.fate == Verdict::Fate::kDropped;
  const bool has_slot = record.slot != TraceRecord::kNoSlot;
  Json sent = Json::array();
  for (size_t i = 0; i < record.sent_count; ++i)
    sent.push_back(
        {{"type", std::string(name(record.sent[i].type))}, {"to", text_of(record.sent[i].to)}});
  Json json = {{"at_us", static_cast<double>(record.time - began) * 1e-3},
               {"lane", lane},
               {"port", port},
               {"type", std::string(name(message.type))},
               {"seq", record.seq.value},
               {"elements", message.elements},
               {"bitmap", those(message.bitmap)},
               {"priority", message.priority},
               {"verdict", text_of(record.fate)},
               {"reason", dropped ? Json(std::string(name(record.reason))) : Json(nullptr)},
               {"slot", has_slot ? Json(record.slot) : Json(nullptr)},
               {"slot_state", has_slot ? Json(aggregator::name(record.state)) : Json(nullptr)},
               {"held", those(record.held)},
               {"sent", std::move(sent)}};
  const bool is_worker = value(record.rank) < ranks.size();
  json["rank"] = is_worker ? Json(ranks[value(record.rank)]) : Json(nullptr);
  // Questions and answers name no operation.
  const bool names = message.type == wire::Type::kGrad || message.type == wire::Type::kPart ||
                     message.type == wire::Type::kResult;
  json["operation"] = names ? Json(message.operation) : Json(nullptr);
  json["operation_text"] = names ? Json(wire::text_of(message.signature())) : Json(nullptr);
  return json;
}

}  // namespace

tl::expected<uint64_t, AdminError> Tracing::begin(const Job& job, uint32_t packets,
                                                  const std::string& who, Nanos now,
                                                  const std::string& source) {
  if (packets < 1 || packets > kMostPackets)
    return decline(Code::kInvalid,
                   fmt::format("{} packets are not in 1..{}", packets, kMostPackets));
  const bool gives_way = !source.empty();
  const bool must_wait = trace_ && (!trace_->gives_way || gives_way);
  if (must_wait && now - trace_->asked < kForgottenNs)
    return decline(Code::kBusy, fmt::format("the switch traces job {} for {}, and one job at a "
                                            "time; try again when that has ended",
                                            trace_->label, trace_->who));
  if (trace_) end();
  Trace trace{.number = next_++,
              .who = who,
              .label = fmt::format("{}/{}", job.owner(), job.name),
              .job = job.id,
              .domains = {},
              .packets = packets,
              .gives_way = gives_way,
              .began = now,
              .asked = now,
              .lanes = {}};
  std::vector<aggregator::JobIndex> domains;
  for (const Domain& domain : job.workers_domains()) {
    domains.push_back(domain.index);
    TracedDomain& traced = trace.domains.emplace_back(TracedDomain{domain.index, {}});
    for (const Rank rank : job.ranks_of(domain.index, WorkerSet::first(domain.members)))
      traced.ranks.push_back(value(rank));
  }
  for (uint32_t lane = 0; lane < lanes_.count(); ++lane)
    trace.lanes.push_back(std::make_unique<PacketTrace>(domains, packets));
  trace_ = std::move(trace);
  lanes_.run_each([&](uint32_t lane) { return command::SetTrace{trace_->lanes[lane].get()}; });
  logging::info("packets traced", source)("by", who)("job", trace_->label)("packets", packets);
  return trace_->number;
}

AdminAnswer Tracing::get(uint64_t number, bool ends, Nanos now) {
  if (!trace_ || trace_->number != number)
    return decline(Code::kNotFound, "the trace has ended: nobody asked for it in time");
  trace_->asked = now;
  size_t seen = 0;
  for (const auto& lane : trace_->lanes) seen += lane->records().size();
  const bool job_ended = has_ended(*trace_);
  const bool done = seen >= trace_->packets || job_ended || ends;
  if (!done) return Json{{"done", false}, {"packets_seen", seen}};
  // The lanes fill it no more from here on.
  lanes_.run(command::SetTrace{nullptr});
  const Trace trace = std::move(*std::exchange(trace_, std::nullopt));
  Json packets = packets_json(trace);
  const bool complete = packets.size() == trace.packets;
  return Json{{"done", true},
              {"job", trace.label},
              {"id", value(trace.job)},
              {"wanted", trace.packets},
              {"complete", complete},
              {"job_ended", job_ended},
              {"packets", std::move(packets)}};
}

bool Tracing::has_ended(const Trace& trace) const {
  const Job* const job = jobs_.at(trace.domains.front().index);
  return !job || job->id != trace.job;
}

void Tracing::end() {
  lanes_.run(command::SetTrace{nullptr});
  trace_.reset();
}

/// The first packets of all lanes, by time.
Json Tracing::packets_json(const Trace& trace) const {
  std::vector<std::pair<const TraceRecord*, uint32_t>> found;
  for (uint32_t lane = 0; lane < trace.lanes.size(); ++lane)
    for (const TraceRecord& record : trace.lanes[lane]->records()) found.push_back({&record, lane});
  std::ranges::stable_sort(found, {}, [](const auto& one) { return one.first->time; });
  found.resize(std::min<size_t>(found.size(), trace.packets));
  Json packets = Json::array();
  for (const auto& [record, lane] : found) {
    const auto domain = std::ranges::find(trace.domains, record->job, &TracedDomain::index);
    packets.push_back(
        packet_json(*record, domain->ranks, lane, port_name(record->port), trace.began));
  }
  return packets;
}

std::string Tracing::port_name(uint16_t port) const {
  return port == 0 ? config_.shm_name : config_.frame_ports[port - 1].name;
}

}  // namespace ina::switchd

// One shard of the switch against any sequence of packets, bursts, epochs, and jobs that come and
// go, under every policy and with every home of the fallback.
//
// The content of job 0's contributions follows from rank and fragment, in any order and number. So
// every partial sum must match its bitmap, no contribution may leave twice, and a result of the
// switch must hold them all (I1). Job 1's packets are anything that a transport lets through (I4).
// Each packet has one fate, the counters account for all contributions, and when the jobs are gone
// nothing is held (I5).
//
// Input: the configuration (8 bytes), then one packet or call after the other.
#include <map>

#include "aggregator/serve.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/contribution.h"
#include "tests/fuzz/input.h"

namespace {

using namespace ina;
using aggregator::Aggregator;
using aggregator::Emission;
using aggregator::Fallback;
using aggregator::JobIndex;
using aggregator::JobSpec;
using aggregator::Verdict;
using fuzz::Input;
using wire::Type;

constexpr uint32_t kJobs = 2;
constexpr uint32_t kHonest = 0;
constexpr uint32_t kMaxBurst = 8;

struct alignas(64) Line {
  std::byte bytes[64];
};

/// A job as the conductor would keep it.
struct Job {
  JobSpec spec;
  std::vector<Line> results;
  std::vector<WorkerSet> seen;
  std::unique_ptr<Fallback> spill;
};

class Run {
 public:
  explicit Run(Input& input) : input_(input) {
    shape_.policy.kind = scheduler::kPolicyNames[input.below(scheduler::kPolicies)].value;
    shape_.policy.residual = input.flag();
    shape_.policy.decay = scheduler::kDecayNames[input.below(3)].value;
    const uint8_t options = input.byte();
    shape_.policy.near_full_bonus = options & 1;
    shape_.policy.ways = options & 2 ? 2u << options / 64 % 3 : 1u;
    home_ = kHomeNames[options / 4 % 3].value;
    shape_.lanes = 1 + options / 16 % 2;
    shape_.lane = options / 32 % shape_.lanes;
    window_ = 4u << input.below(3);
    shape_.slots = is_static() ? kJobs * pool_slots() : 1u << input.below(5);
    shape_.slot_bytes = fuzz::kSlotBytes;
    shape_.max_jobs = kJobs;
    shape_.burst = kMaxBurst;
    rows_.resize(Aggregator::row_memory_bytes(shape_) / sizeof(Line));
    aggregator_.emplace(shape_, std::as_writable_bytes(std::span(rows_)));
    for (JobIndex job = 0; job < kJobs; ++job) add_job(job);
  }

  void run() {
    while (!input_.empty()) step();
    serve();
    for (JobIndex job = 0; job < kJobs; ++job) aggregator_->remove_job(job);
    INA_FUZZ_CHECK(aggregator_->contributions_held() == 0);
    INA_FUZZ_CHECK(aggregator_->counters().slots_used == 0);
    check_ledger();
  }

 private:
  bool is_static() const { return !scheduler::traits(shape_.policy.kind).hashed; }
  uint32_t pool_slots() const { return 2 * window_ / shape_.lanes; }

  void add_job(JobIndex index) {
    Job& job = jobs_[index];
    job = Job{};
    JobSpec& spec = job.spec;
    spec.id = JobId{index + ++incarnations_ * kJobs};
    spec.epoch = 1 + input_.below(3);
    spec.workers = 1 + input_.below(4);
    spec.window = window_;
    spec.pool = {index * pool_slots(), pool_slots(), shape_.lanes, shape_.lane};
    spec.quota = {input_.below(shape_.slots / kJobs + 1), 1 + input_.below(shape_.slots)};
    spec.rules.priority_max = static_cast<uint8_t>(std::max<uint32_t>(1, input_.byte()));
    spec.rules.home = home_;
    job.results.resize(2 * size_t{window_} * shape_.slot_bytes / sizeof(Line));
    spec.results = std::as_writable_bytes(std::span(job.results)).data();
    job.seen.resize(JobSpec::seen_words(window_, shape_.lanes));
    spec.seen = job.seen.data();
    if (home_ == Home::kSpill) spec.spill = new_spill(job);
    aggregator_->add_job(index, spec);
    if (index != kHonest) return;
    left_.clear();
    frozen_.clear();
    base_ = 0;
    limit_ = window_;
  }

  Fallback* new_spill(Job& job) {
    aggregator::FallbackConfig config;
    config.workers = job.spec.workers;
    config.window = window_;
    config.slot_bytes = shape_.slot_bytes;
    config.lanes = config.shards = shape_.lanes;
    config.shard = shape_.lane;
    config.instance = job.spec.instance;
    config.epoch = config.min_epoch = job.spec.epoch;
    config.bind_at_once = is_static();
    job.spill = std::make_unique<Fallback>(config);
    return job.spill.get();
  }

  void step() {
    switch (input_.below(16)) {
      case 0:
        return serve();
      case 1: {  // the honest job goes on
        base_ += input_.below(window_);
        return;
      }
      case 2: {
        serve();
        const auto index = static_cast<JobIndex>(input_.below(kJobs));
        if (input_.below(8) != 0) return new_epoch(index);
        aggregator_->remove_job(index);
        return add_job(index);
      }
      case 3:
      case 4:
      case 5:
        return enqueue_hostile();
      case 6:
      case 7:
        return enqueue_about_fallback();
      default:
        return enqueue_contribution();
    }
  }

  void new_epoch(JobIndex index) {
    Job& job = jobs_[index];
    ++job.spec.epoch;
    job.spec.instance += input_.below(2);
    std::unique_ptr<Fallback> old = std::move(job.spill);
    aggregator_->new_epoch(index, job.spec.epoch, job.spec.instance,
                           home_ == Home::kSpill ? new_spill(job) : nullptr);
    if (index != kHonest) return;
    left_.clear();
    frozen_.clear();
  }

  uint32_t pick_seq() {
    return (base_ + input_.below(3 * window_)) / shape_.lanes * shape_.lanes +
           (input_.below(16) == 0 ? 0 : shape_.lane);
  }

  void enqueue(JobIndex job, Rank rank, const wire::Message& message,
               std::vector<std::byte> payload) {
    const auto bytes = static_cast<uint32_t>(payload.size());
    if (wire::validate(message, bytes, shape_.slot_bytes)) return;
    payloads_.push_back(std::move(payload));
    packets_.push_back({message, bytes == 0 ? nullptr : payloads_.back().data(), bytes, job, rank});
    if (packets_.size() == kMaxBurst) serve();
  }

  void enqueue_contribution() {
    const JobSpec& spec = jobs_[kHonest].spec;
    const uint32_t seq = pick_seq();
    const auto rank = Rank{static_cast<uint8_t>(input_.below(spec.workers))};
    const uint8_t options = input_.byte();
    wire::Message message = fuzz::message_of(Type::kGrad, seq, spec.workers);
    message.bitmap = WorkerSet::of(rank);
    message.rank = rank;
    message.priority = options;
    message.epoch = spec.epoch;
    if (options % 16 == 1) --message.epoch;
    if (options % 64 == 2) ++message.epoch;
    if (options == 255) ++message.operation;  // the workers disagree
    enqueue(kHonest, rank, message, fuzz::sum_of(kHonest, seq, WorkerSet::of(rank)));
  }

  /// Messages between the honest job's workers and its fallback.
  void enqueue_about_fallback() {
    static constexpr Type kTypes[] = {Type::kQuery, Type::kSent,   Type::kNotYet, Type::kHave,
                                      Type::kDefer, Type::kRemind, Type::kPoll,   Type::kResult};
    const JobSpec& spec = jobs_[kHonest].spec;
    const uint32_t seq = pick_seq();
    wire::Message message =
        fuzz::message_of(kTypes[input_.below(std::size(kTypes))], seq, spec.workers);
    const uint8_t options = input_.byte();
    auto rank = Rank{static_cast<uint8_t>(options % spec.workers)};
    message.instance = spec.instance;
    message.epoch = spec.epoch;
    WorkerSet workers = message.bitmap;
    if (message.type >= Type::kRemind || message.type == Type::kPoll ||
        message.type == Type::kResult) {
      // From the fragment's home, mostly. A fallback within the lane speaks for itself.
      if (home_ == Home::kSpill) return;
      if (options % 8 != 7)
        rank = home_ == Home::kWorkers ? home_of(Seq{seq}, spec.workers) : kFallbackRank;
      message.instance += options / 64;
    } else if (message.type == Type::kDefer) {
      if (options & 64) message.flags = wire::kFlagRaw;
      workers = WorkerSet::of(rank);
    }
    message.rank = rank;
    enqueue(kHonest, rank, message,
            wire::payload_bytes(message) == 0 ? std::vector<std::byte>()
                                              : fuzz::sum_of(kHonest, seq, workers));
  }

  void enqueue_hostile() {
    wire::Message message;
    const uint8_t options = input_.byte();
    if (options & 1) {
      input_.fill(std::as_writable_bytes(std::span(&message, 1)));
    } else {  // nearly right
      message = fuzz::message_of(static_cast<Type>(1 + input_.below(13)), input_.below(64), 4);
      message.epoch = jobs_[1].spec.epoch;
      message.priority = input_.byte();
      message.flags = input_.byte() & wire::kAllFlags;
      message.elements = static_cast<uint16_t>(input_.below(fuzz::kElements + 1));
      message.dtype = kAllDTypes[input_.below(std::size(kAllDTypes))];
      message.op = kAllOps[input_.below(std::size(kAllOps))];
    }
    // The binding knows a worker's rank, and that a fallback server is one.
    const uint32_t workers = jobs_[1].spec.workers;
    const auto rank = home_ == Home::kDedicated && (options & 2)
                          ? kFallbackRank
                          : Rank{static_cast<uint8_t>(options / 4 % workers)};
    enqueue(1, rank, message,
            std::vector<std::byte>(wire::payload_bytes(message), std::byte{options}));
  }

  // ---- what the switch makes of it

  void serve() {
    std::vector<Verdict> verdicts(packets_.size());
    aggregator_->on_burst(packets_, now_ += 1000, verdicts);
    const auto send = [this](JobIndex job, Rank rank, const Emission& emission) {
      check_sent(job, rank, emission);
    };
    // Workers that break the rules may run more than a window ahead within a burst, and then
    // overwrite their own results before they are sent. Which stays depends on how groups lie.
    only_of_row_.clear();
    uint32_t limit = limit_;  // after the burst
    for (const Verdict& verdict : verdicts)
      for (const Emission& emission : verdict.to_send()) {
        if (emission.job != kHonest || emission.message.type != Type::kResult) continue;
        const uint32_t seq = emission.message.seq;
        limit = std::max(limit, seq + 1 + window_);
        const auto [row, first] = only_of_row_.try_emplace(seq % (2 * window_), seq);
        if (!first && row->second != seq) row->second = kSeveral;
      }
    for (size_t i = 0; i < packets_.size(); ++i) {
      INA_FUZZ_CHECK(verdicts[i].emissions <= verdicts[i].emission.size());
      ++fates_[static_cast<size_t>(verdicts[i].fate)];
      check_epoch(packets_[i], verdicts[i]);
      // C1: nobody is further ahead than W of the highest result.
      if (packets_[i].job == kHonest && packets_[i].message.seq >= limit)
        INA_FUZZ_CHECK(verdicts[i].fate == Verdict::Fate::kDropped);
      for (const Emission& emission : verdicts[i].to_send()) check(emission, packets_[i]);
      aggregator::carry_out(*aggregator_, verdicts[i], packets_[i].rank, send);
    }
    only_of_row_.clear();
    for (JobIndex job = 0; job < kJobs; ++job)
      if (jobs_[job].spill && jobs_[job].spill->has_output())
        aggregator::serve_spill(*aggregator_, job, aggregator_->scratch(), send);
    packets_.clear();
    payloads_.clear();
    check_ledger();
  }

  /// Contributions of another epoch are refused, and old ones answered.
  void check_epoch(const aggregator::RxPacket& packet, const Verdict& verdict) {
    const uint32_t epoch = jobs_[packet.job].spec.epoch;
    if (packet.message.type != Type::kGrad || packet.message.epoch == epoch) return;
    INA_FUZZ_CHECK(verdict.fate == Verdict::Fate::kDropped);
    if (verdict.reason != DropReason::kStaleEpoch) return;
    INA_FUZZ_CHECK(verdict.emissions == 1 && packet.message.epoch < epoch);
    INA_FUZZ_CHECK(verdict.emission[0].to == Emission::To::kSender);
    INA_FUZZ_CHECK(verdict.emission[0].message.type == Type::kStale);
    INA_FUZZ_CHECK(verdict.emission[0].message.epoch == epoch);
  }

  /// An emission of the burst, before anything else happens.
  void check(const Emission& emission, const aggregator::RxPacket& packet) {
    INA_FUZZ_CHECK(emission.job < kJobs);
    const wire::Message& message = emission.message;
    INA_FUZZ_CHECK(emission.payload_bytes <= shape_.slot_bytes);
    INA_FUZZ_CHECK(emission.payload_bytes == 0 || emission.payload);
    // I4: only a slot that is taken over says something about another job.
    INA_FUZZ_CHECK(emission.job == packet.job || message.type == Type::kPart);
    if (message.type == Type::kPoll || packet.message.type == Type::kResult)
      INA_FUZZ_CHECK(packet.rank == home_of_fragment(packet));
    if (emission.job != kHonest) return;
    switch (message.type) {
      case Type::kPart:
        return check_part(emission);
      case Type::kResult:
        INA_FUZZ_CHECK(message.bitmap == full());
        check_result(emission);
        if (message.origin == wire::Origin::kSwitch && emission.to == Emission::To::kAll)
          leave(message.seq, full());
        return;
      default:
        return;
    }
  }

  Rank home_of_fragment(const aggregator::RxPacket& packet) const {
    if (home_ != Home::kWorkers) return kFallbackRank;
    return home_of(aggregator_->seq_of(packet.job, packet.message.seq),
                   jobs_[packet.job].spec.workers);
  }

  /// A partial sum, or a contribution that passes by.
  void check_part(const Emission& emission) {
    const wire::Message& message = emission.message;
    INA_FUZZ_CHECK(emission.to == Emission::To::kFallback);
    INA_FUZZ_CHECK(!message.bitmap.empty() && full().covers(message.bitmap));
    INA_FUZZ_CHECK(message.epoch == jobs_[kHonest].spec.epoch);
    INA_FUZZ_CHECK(is_sum(emission, message.bitmap));
    // Some policies keep a sum that they have sent, and send the same again when reminded.
    WorkerSet& frozen = frozen_[message.seq];
    if (scheduler::traits(shape_.policy.kind).held_until_acknowledged && frozen == message.bitmap)
      return;
    leave(message.seq, message.bitmap);
    if ((message.flags & wire::kFlagRaw) == 0) frozen = message.bitmap;
  }

  /// I1: a contribution leaves the switch once.
  void leave(uint32_t seq, WorkerSet workers) {
    INA_FUZZ_CHECK(!left_[seq].intersects(workers));
    left_[seq] |= workers;
  }

  void check_sent(JobIndex job, Rank rank, const Emission& emission) {
    INA_FUZZ_CHECK(job == emission.job);
    INA_FUZZ_CHECK(value(rank) < jobs_[job].spec.workers || rank == kFallbackRank);
    // I2: the result is the sum of all, with any decider.
    if (job != kHonest || emission.message.type != Type::kResult) return;
    check_result(emission);
    limit_ = std::max(limit_, emission.message.seq + 1 + window_);
  }

  void check_result(const Emission& emission) {
    const auto only = only_of_row_.find(emission.message.seq % (2 * window_));
    if (only == only_of_row_.end() || only->second == emission.message.seq)
      INA_FUZZ_CHECK(is_sum(emission, full()));
  }

  void check_ledger() {
    const aggregator::Counters& c = aggregator_->counters();
    INA_FUZZ_CHECK(c.absorbed == fates_[static_cast<size_t>(Verdict::Fate::kAbsorbed)]);
    INA_FUZZ_CHECK(c.packets == c.absorbed + c.forwarded + c.dropped());
    INA_FUZZ_CHECK(c.absorbed + c.bypassed ==
                   aggregator_->contributions_held() + c.contributions_in_results +
                       c.contributions_moved + c.contributions_discarded);
    INA_FUZZ_CHECK(c.slots_used <= shape_.slots);
  }

  WorkerSet full() const { return WorkerSet::first(jobs_[kHonest].spec.workers); }
  static bool is_sum(const Emission& emission, WorkerSet workers) {
    return fuzz::is_sum(emission.payload, emission.payload_bytes, kHonest, emission.message.seq,
                        workers);
  }

  Input& input_;
  aggregator::Shape shape_;
  Home home_{};
  uint32_t window_ = 0;
  std::vector<Line> rows_;
  std::optional<Aggregator> aggregator_;
  Job jobs_[kJobs];
  uint32_t incarnations_ = 0;
  uint32_t base_ = 0;   ///< where the honest job is, about
  uint32_t limit_ = 0;  ///< the first fragment that nobody may have sent yet
  Nanos now_ = 0;
  std::vector<aggregator::RxPacket> packets_;
  std::vector<std::vector<std::byte>> payloads_;
  uint64_t fates_[3] = {};
  static constexpr uint32_t kSeveral = ~0u;
  std::map<uint32_t, uint32_t> only_of_row_;  ///< fragment, or kSeveral, whose result it had
  std::map<uint32_t, WorkerSet> left_;        ///< of the honest job, in this epoch
  std::map<uint32_t, WorkerSet> frozen_;      ///< sums that have been sent and may be sent again
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Run(input).run();
  return 0;
}

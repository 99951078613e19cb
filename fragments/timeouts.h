// How long a worker waits before it asks for a result. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fragments/round_trip.h"

namespace ina::client {

class Timeouts {
 public:
  /// `least`: nothing is asked for sooner, unless it is known to be lost. `most`: the longest time
  /// between two questions, unless round trips take longer.
  Timeouts(Nanos least, Nanos most) : least_(least), most_(most) {}

  /// Other bounds from now on.
  void use(Nanos least, Nanos most) {
    least_ = least;
    most_ = most;
  }

  /// The time-out of a fragment that has timed out so many times. Getting a result that does not
  /// come takes two questions, so patience grows after these.
  Nanos after(uint8_t timeouts) const {
    const Nanos base = std::max(least_, round_trip.late());
    const int doublings = std::clamp<int>(timeouts - kPatientAfter, 0, 10);
    return std::min(base << doublings, std::max(base, most_));
  }
  /// The time-out of a fragment that is certainly lost. The floor of after() is for answers
  /// that are merely late. `answers`: between_questions().
  Nanos after_loss(uint8_t timeouts, Nanos answers) const {
    const int doublings = std::clamp<int>(timeouts - kPatientAfterLoss, 0, 20);
    const Nanos between = between_questions(answers);
    return std::min(between << doublings, std::max(between, after(UINT8_MAX)));
  }
  /// The time-out of a fragment whose result is not to be expected for now.
  Nanos longest() const { return std::max(after(0), most_); }
  /// A question, the fallback's own, and their answers. `answers`: until the link has brought all
  /// that is under way. A worker that asks again sooner is answered twice, and a queue full of
  /// answers drops the next ones.
  Nanos between_questions(Nanos answers) const {
    return std::max({kLeastBetweenQuestionsNs, answers,
                     kRoundTripsOfAnswer * std::min(round_trip.standing(), round_trip.late())});
  }
  /// A fragment arrived that had timed out so many times. Every fragment that arrives was asked
  /// for, so there are no new samples. The old ones are from a time of heavy loss: long ones are
  /// forgotten (RFC 6298, section 5). Otherwise all fragments would be recovered at the pace of
  /// queues that are empty now. Returns whether the samples were forgotten.
  bool doubt(uint8_t timeouts, Nanos now) {
    if (timeouts < kPatientAfter || now - round_trip.sampled_at() <= after(0)) return false;
    round_trip.forget();
    return true;
  }

  RoundTrip round_trip;  ///< as measured so far

 private:
  // Time-outs of a fragment before they begin to double.
  static constexpr int kPatientAfter = 2;
  // And of one that is lost: most steps of its recovery may be lost in turn.
  static constexpr int kPatientAfterLoss = 8;
  // Between questions for a fragment that was overtaken.
  static constexpr Nanos kLeastBetweenQuestionsNs = 500'000;
  static constexpr Nanos kRoundTripsOfAnswer = 4;

  Nanos least_;
  Nanos most_;
};

}  // namespace ina::client

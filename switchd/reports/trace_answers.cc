#include "switchd/reports/trace_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;
using control::Json;

namespace {

constexpr Nanos kMsNs = 1'000'000;
constexpr Nanos kSecondNs = 1'000'000'000;
constexpr Nanos kLookNs = 20 * kMsNs;

}  // namespace

void TraceAnswers::on_trace(Client& client, const request::Trace& asked, Nanos now) {
  const bool trusted = client.may_administer();
  const Nanos longest = trusted ? kLongestTrustedNs : kLongestNs;
  const auto refuse = [&](const std::string& text) {
    connections_.refuse(client, INA_ERR_REFUSED, text);
  };
  if (asked.timeout_ms == 0 || asked.timeout_ms > static_cast<uint64_t>(longest / kMsNs))
    return refuse(fmt::format("a trace takes 1 ms to {} s (--timeout)", longest / kSecondNs));
  if (const std::string text = status_.unread_text(client); !text.empty()) return refuse(text);
  if (const std::string text = too_much_text(client, now); !text.empty()) return refuse(text);
  const auto job = find(client, asked);
  if (!job) return refuse(job.error().text);
  const auto begun = tracing_.begin(**job, asked.packets, client.who(), now,
                                    trusted ? std::string() : client.source());
  if (!begun)
    // Other hosts are not told for whom it traces.
    return refuse(client.peer.remote && !trusted && begun.error().code == AdminError::Code::kBusy
                      ? "the switch traces another job, and one at a time; try again"
                      : begun.error().text);
  turn(now);  // for whose trace it took the place of
  asked_ = Asked{.client = &client,
                 .trace = *begun,
                 .began = now,
                 .until = now + static_cast<Nanos>(asked.timeout_ms) * kMsNs,
                 .look = now + kLookNs};
}

/// The job that is meant, if it is the client's. Its own of that name comes before others'.
tl::expected<const Job*, AdminError> TraceAnswers::find(const Client& client,
                                                        const request::Trace& asked) const {
  const std::string own = client.owner();
  auto found = jobs_.meant(asked.job, asked.owner.empty() ? own : asked.owner);
  if (!found && asked.owner.empty()) found = jobs_.meant(asked.job, "");
  if (found && ((*found)->owner() == own || client.may_administer())) return *found;
  // The names of other tenants' jobs are none of its business.
  if (client.peer.remote && !client.administers())
    return tl::unexpected(AdminError{AdminError::Code::kNotFound,
                                     fmt::format("there is no job '{}' of {}", asked.job, own)});
  if (!found) return tl::unexpected(found.error());
  return tl::unexpected(AdminError{
      AdminError::Code::kInvalid,
      fmt::format(
          "job '{}' belongs to {}, and you are {}: its owner and administrators may trace it",
          (*found)->name, (*found)->owner(), own)});
}

/// Why the client may not trace just now; empty: it may.
std::string TraceAnswers::too_much_text(const Client& client, Nanos now) {
  if (client.may_administer()) return {};
  const Nanos wait = budget_.free_at(client.peer.key(), now) - now;
  if (wait <= 0) return {};
  return fmt::format(
      "{} has traced for so long that the packets of all jobs were slower: again in {} s",
      client.peer.source(), (wait + kSecondNs - 1) / kSecondNs);
}

void TraceAnswers::forget(const Client& client, Nanos now) {
  if (!asked_ || asked_->client != &client) return;
  (void)tracing_.get(asked_->trace, true, now);
  end(now);
}

void TraceAnswers::turn(Nanos now) {
  if (!asked_) return;
  asked_->look = now + kLookNs;
  auto found = tracing_.get(asked_->trace, now >= asked_->until, now);
  Client& client = *asked_->client;
  if (!found) {
    end(now);
    connections_.refuse(client, INA_ERR_REFUSED,
                        "an administrator has begun a trace, which ended this one; try again");
  } else if (found->value("done", false)) {
    end(now);
    found->erase("done");
    status_.send_trace(client, std::move(*found));
  }
}

Nanos TraceAnswers::next(Nanos until) const {
  return asked_ ? std::min(until, asked_->look) : until;
}

/// It is over, and its time is its user's.
void TraceAnswers::end(Nanos now) {
  const Asked asked = *std::exchange(asked_, std::nullopt);
  if (!asked.client->may_administer())
    budget_.charge(asked.client->peer.key(), now - asked.began, now);
}

}  // namespace ina::switchd

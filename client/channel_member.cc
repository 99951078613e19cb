#include "client/channel_member.h"

#include <utility>

#include "common/clock.h"
#include "membership/control_text.h"
#include "membership/rejoin_pause.h"

namespace ina::client {

namespace {

/// request::Rejoin::held
std::vector<uint64_t> held_by(const Engine& engine) {
  std::vector<uint64_t> runs;
  if (!engine.config().in_tree()) return runs;
  engine.for_each_held([&](Seq seq) { control::add_to_runs(runs, seq.value); });
  return runs;
}

}  // namespace

ChannelMember::ChannelMember(const Channel& channel)
    : channel_(channel),
      admission_(channel.settings, channel.session.connection(), channel.id, channel.attachment,
                 *this) {}

// ---- the job itself

Result<membership::Joiner::Joined> ChannelMember::join(const Url& url, Nanos deadline) {
  if (auto fine = channel_.session.check(); !fine) return tl::unexpected(fine.error());
  membership::Joiner joiner(channel_.settings, channel_.session.connection(), channel_.attachment,
                            admission_, *this);
  return joiner.join(url, shared_settings(channel_.settings), deadline);
}

void ChannelMember::rejoin() {
  membership::Rejoin(channel_.settings, channel_.session.connection(), channel_.attachment,
                     admission_, channel_.progress.presence(), *this)
      .run();
}

// ---- a group

Result<void> ChannelMember::share(const membership::Attachment& parent) {
  if (!parent.frames()) return {};
  auto shared = channel_.attachment.share(parent);
  if (!shared) return tl::unexpected(shared.error());
  open(std::move(*shared));
  return {};
}

void ChannelMember::ask_to_join() {
  channel_.session.connection().send(channel_.id, request::Join{.member = admission_.identity()});
}

void ChannelMember::ask_to_rejoin() {
  if (channel_.callers.failed() != INA_OK) return;
  channel_.progress.presence().set_others_missing(membership::kOtherRanks);
  if (auto opened = channel_.attachment.reopen(membership::kOpenPortNs); !opened)
    return end(INA_ERR_SWITCH_LOST, "the group cannot come back: " + opened.error().text);
  channel_.session.connection().send(channel_.id, rejoin_message());
}

void ChannelMember::on_joined(const answer::Joined& joined, control::Heard& heard) {
  if (channel_.id == 0 || (channel_.link.has_engine() && !channel_.progress.is_away())) return;
  if (!channel_.link.has_engine()) {
    auto entered = admission_.enter(joined, heard);
    if (!entered) end(entered.error().status, entered.error().text);
    return;
  }
  if (const std::string text = admission_.changed_text(joined, engine_config()); !text.empty())
    return end(INA_ERR_SWITCH_LOST, text);
  auto transport = admission_.attach(joined.place, heard);
  if (!transport) return end(transport.error().status, transport.error().text);
  return_ = Return{admission_.engine_config(joined), std::move(*transport)};
}

void ChannelMember::on_ready(const answer::Ready& ready) {
  if (channel_.id == 0 || !channel_.link.has_engine()) return;
  Progress& progress = channel_.progress;
  if (progress.is_away() && return_) {
    Return back = std::move(*return_);
    return_.reset();
    come_back(back.told, std::move(back.transport), ready);
  }
  {
    const auto lock = progress.lock();
    progress.go_live();
    progress.rest();
  }
  channel_.callers.tell([] {});
}

// ---- both

void ChannelMember::go_away() {
  if (channel_.callers.failed() != INA_OK) return;
  if (!channel_.link.is_complete())
    return end(INA_ERR_SWITCH_LOST, "the switch was restarted while this group was made");
  {
    const auto lock = channel_.progress.lock();
    // Results that the switch delivered before it went need no recovery.
    channel_.progress.receive_rest();
    channel_.progress.count();
    standing_ = channel_.link.engine().standing();
    held_ = held_by(channel_.link.engine());
    return_.reset();
    const auto state = channel_.callers.lock();
    channel_.splits.go_away();
    channel_.member_groups.go_away();
    channel_.progress.presence().go_away(now_ns());
  }
  channel_.callers.wake();
}

void ChannelMember::on_waiting(const answer::Waiting& waiting) {
  Progress& progress = channel_.progress;
  if (progress.is_away() || !progress.is_live())
    progress.presence().set_others_missing(membership::missing_text(waiting));
}

// ---- membership::ReturningMember

void ChannelMember::open(std::unique_ptr<FrameTransport> frames) {
  channel_.link.open(std::move(frames));
}

void ChannelMember::begin(const EngineConfig& config) {
  channel_.link.make_engine(config);
}

void ChannelMember::register_memory(Transport& transport) {
  channel_.memory.register_again(transport);
}

void ChannelMember::connect(std::unique_ptr<Transport> transport) {
  channel_.link.connect(std::move(transport));
}

void ChannelMember::set_epoch(uint32_t epoch) {
  channel_.link.engine().set_epoch(epoch, now_ns());
}

bool ChannelMember::going_on() const {
  return !channel_.session.stopping() && channel_.callers.failed() == INA_OK;
}

int ChannelMember::wake_fd() const {
  return channel_.session.wakeups().fd();
}

void ChannelMember::drain_wakes() {
  channel_.session.wakeups().drain();
}

const EngineConfig& ChannelMember::engine_config() const {
  return channel_.link.engine().config();
}

request::Rejoin ChannelMember::rejoin_message() const {
  request::Rejoin message = admission_.rejoin(standing_, held_);
  const auto state = channel_.callers.lock();
  message.buffers_shared = channel_.memory.buffers_shared();
  message.splits = channel_.splits.answered();
  return message;
}

void ChannelMember::on_registered(const answer::Registered& registered) {
  channel_.memory.on_registered(registered);
}

void ChannelMember::come_back(const EngineConfig& told, std::unique_ptr<Transport> transport,
                              const answer::Ready& ready) {
  Progress& progress = channel_.progress;
  {
    const auto lock = progress.lock();
    // Before the old results are unmapped: it may still need some of them.
    channel_.link.engine().rejoin(told, now_ns());
    if (auto replaced = channel_.memory.make_ordinary(); !replaced)
      progress.end(replaced.error().status, replaced.error().text);
    channel_.peer_errors.report_again();
    if (transport) transport = channel_.link.replace(std::move(transport));
    const auto state = channel_.callers.lock();
    progress.presence().come_back();
  }
  {
    // The new transport does not know yet whether a thread drives.
    const auto lock = progress.lock();
    progress.rest();
  }
  channel_.callers.wake();
  channel_.farewell.say_again();
  channel_.memory.share_again(ready.buffers_shared);
  channel_.splits.ask_again(ready.splits);
  channel_.member_groups.ask_again();
}

void ChannelMember::on_refused(const Error& error) {
  // All have left, and the switch went before it could say so.
  if (error.status == INA_ERR_SWITCH_LOST && channel_.farewell.ever_said())
    channel_.farewell.on_left();
  end(error.status, error.text);
}

void ChannelMember::on_ended(const Error& error) {
  channel_.explanations.end_by_switch(error);
}

void ChannelMember::end(int status, const std::string& text) {
  channel_.progress.end(status, text);
}

}  // namespace ina::client

#include "client/channels.h"

#include <utility>

namespace ina::client {

Channels::Added Channels::add(std::shared_ptr<Context> group, uint64_t losses) {
  const std::lock_guard lock(mutex_);
  if (losses != losses_) return Added::kSwitchGone;
  if (stopping_.load()) return Added::kStopping;
  open_.push_back(std::move(group));
  changes_.fetch_add(1);
  return Added::kYes;
}

void Channels::remove(const Context& channel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const auto& open) { return open.get() == &channel; });
  changes_.fetch_add(1);
}

Channels::List Channels::groups() const {
  const std::lock_guard lock(mutex_);
  return open_.empty() ? open_ : List(open_.begin() + 1, open_.end());
}

void Channels::add(std::shared_ptr<Follower> follower) {
  const std::lock_guard lock(mutex_);
  if (stopping_.load()) return;
  followers_open_.push_back(std::move(follower));
  changes_.fetch_add(1);
}

void Channels::remove(const Follower& follower) {
  const std::lock_guard lock(mutex_);
  std::erase_if(followers_open_, [&](const auto& open) { return open.get() == &follower; });
  changes_.fetch_add(1);
}

void Channels::set_root(std::shared_ptr<Context> root) {
  const std::lock_guard lock(mutex_);
  root_ = std::move(root);
  open_.insert(open_.begin(), root_);
  changes_.fetch_add(1);  // the connection may have been lost before, with no channel known
}

Channels::Left Channels::take_all() {
  known_.clear();
  followers_.clear();
  Left left;
  const std::lock_guard lock(mutex_);
  left.channels.swap(open_);
  left.followers.swap(followers_open_);
  root_.reset();
  return left;
}

const Channels::List& Channels::current() {
  if (const uint64_t changes = changes_.load(); changes != changes_known_) {
    const std::lock_guard lock(mutex_);
    changes_known_ = changes;
    known_ = open_;
    followers_ = followers_open_;
  }
  return known_;
}

void Channels::count_loss() {
  const std::lock_guard lock(mutex_);
  ++losses_;
}

}  // namespace ina::client

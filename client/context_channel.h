// A context as a channel of an executor that has several: its operations tell the executor of their
// ends by an inbox, because they end under the context's lock.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "client/context.h"
#include "client/inbox.h"
#include "operations/executor.h"

namespace ina::client {

/// Used under the executor's lock.
class ContextChannel final : public Channel {
 public:
  /// Both must outlive it.
  ContextChannel(Context& context, Inbox& inbox) : context_(context), inbox_(inbox) {}

  Operation* submit_held(const OperationSpec& spec, Nanos now) override {
    OperationSpec own = spec;
    own.listener = &poster_for(*spec.listener);
    return context_.submit_held(own, now);
  }
  void let_go(Operation* operation, const std::byte* send, std::byte* recv, uint64_t elements,
              std::shared_ptr<const scheduler::BlockTable> blocks) override {
    context_.let_go(operation, send, recv, elements, std::move(blocks));
  }
  void skip(Operation*) override {}  // no kernel of these Schedules does
  void forget(Operation* operation) override { context_.forget(operation); }

 private:
  /// Posts what the operations of one Schedule tell.
  class Poster final : public OperationListener {
   public:
    Poster(ContextChannel& channel, OperationListener& schedule)
        : channel_(channel), schedule_(schedule) {}
    void received(Operation& operation) override { post(operation, false); }
    void completed(Operation& operation) override { post(operation, true); }
    const OperationListener& schedule() const { return schedule_; }

   private:
    /// Under the context's lock.
    void post(Operation& operation, bool ended) {
      channel_.inbox_.post(schedule_, operation, ended);
      channel_.context_.interrupt_background();
    }

    ContextChannel& channel_;
    OperationListener& schedule_;
  };

  Poster& poster_for(OperationListener& schedule) {
    const auto found = std::ranges::find_if(
        posters_, [&](const auto& poster) { return &poster->schedule() == &schedule; });
    if (found != posters_.end()) return **found;
    return *posters_.emplace_back(std::make_unique<Poster>(*this, schedule));
  }

  Context& context_;
  Inbox& inbox_;
  std::vector<std::unique_ptr<Poster>> posters_;
};

}  // namespace ina::client

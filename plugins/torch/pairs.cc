#include "plugins/torch/pairs.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <ina/ina.hpp>

#include "plugins/torch/dispatcher.h"
#include "plugins/torch/threads.h"

namespace ina::plugin {

namespace {

constexpr milliseconds kBetweenPolls{3}, kLongestPause{24};
/// Those that join a job may take longer.
constexpr milliseconds kForThreads{1000};
constexpr const char* kSends = "sends";
constexpr const char* kReceives = "receives";

/// In a job of two ranks, 0 sends to 1.
constexpr std::array<int, 2> kForwards{1, INA_NOBODY};

size_t bytes_of(const at::Tensor& tensor) {
  return tensor.nbytes();
}

int send_bytes(ina_context* context, const at::Tensor& bytes, ina_request** request) {
  return ina_permute_async(context, bytes.data_ptr(), nullptr, bytes_of(bytes), INA_UINT8,
                           kForwards.data(), request);
}

int receive_bytes(ina_context* context, void* to, size_t count, ina_request** request) {
  return ina_permute_async(context, nullptr, to, count, INA_UINT8, kForwards.data(), request);
}

template <class Function>
struct Called {
  Function function;
  static void call(void* user, int status) {
    const std::unique_ptr<Called> self(static_cast<Called*>(user));
    self->function(status);
  }
};

/// Starts what `begin` starts, and has `done(status)` called on the library's thread, once. Throws
/// if it does not start.
template <class Function>
void start(Job& job, const std::function<int(ina_context*, ina_request**)>& begin, Function done) {
  auto called = std::make_unique<Called<Function>>(std::move(done));
  job.start(begin, &Called<Function>::call, called.get());
  [[maybe_unused]] const auto* given = called.release();
}

std::shared_ptr<Operation> running(const std::weak_ptr<Operation>& operation) {
  auto alive = operation.lock();
  return alive && !alive->done() ? alive : nullptr;
}

std::exception_ptr left_error() {
  return std::make_exception_ptr(Exception(INA_ERR_ABORTED, "the process group has left its jobs"));
}

}  // namespace

Pairs::Pairs(JobOptions group, c10::intrusive_ptr<c10d::Store> store)
    : group_(std::move(group)),
      store_(std::move(store)),
      outbound_(static_cast<size_t>(group_.size)),
      inbound_(static_cast<size_t>(group_.size)) {}

std::string Pairs::name_of(int from, int to) const {
  return group_.name + "-" + std::to_string(from) + "-to-" + std::to_string(to);
}

std::string Pairs::key_of(const char* who, int from, int to) const {
  return std::string("ina/") + who + "/" + std::to_string(from) + "/" + std::to_string(to);
}

std::shared_ptr<Job> Pairs::make_job(int from, int to) const {
  JobOptions options = group_;
  options.name = name_of(from, to);
  options.rank = group_.rank == from ? 0 : 1;
  options.size = 2;
  options.pair = true;
  return std::make_shared<Job>(std::move(options));
}

/// Waits for the other rank on a thread of its own.
void Pairs::open(int from, int to) {
  const bool sends = group_.rank == from;
  Direction& direction = sends ? static_cast<Direction&>(outbound_[static_cast<size_t>(to)])
                               : inbound_[static_cast<size_t>(from)];
  direction.state = State::kOpening;
  direction.job = make_job(from, to);
  run_thread([this, job = direction.job, from, to](c10d::Store& store) {
    std::exception_ptr error;
    try {
      if (!meet(store, from, to)) return;
      job->join();
    } catch (...) {
      error = std::current_exception();
    }
    opened(from, to, error);
  });
}

/// With the mutex. leave() waits for the end of `task`.
void Pairs::run_thread(std::function<void(c10d::Store&)> task) {
  ++threads_;
  run_detached([self = shared_from_this(), store = store_, task = std::move(task)]() mutable {
    task(*store);
    store.reset();
    const std::lock_guard lock(self->mutex_);
    --self->threads_;
    self->thread_ended_.notify_all();
  });
}

/// Waits until both ranks of a direction want it open. False: nobody here waits for that any more.
bool Pairs::meet(c10d::Store& store, int from, int to) {
  const bool sends = group_.rank == from;
  store.set(key_of(sends ? kSends : kReceives, from, to), std::vector<uint8_t>{1});
  for (milliseconds pause = kBetweenPolls; awaited(from, to);
       pause = std::min(2 * pause, kLongestPause)) {
    if (store.check({key_of(sends ? kReceives : kSends, from, to)})) return true;
    std::this_thread::sleep_for(pause);
  }
  return false;
}

/// Closes the direction otherwise.
bool Pairs::awaited(int from, int to) {
  const std::lock_guard lock(mutex_);
  const bool sends = group_.rank == from;
  const bool any = sends ? !outbound_[static_cast<size_t>(to)].queue.empty() : wanted(from);
  if (any && !left_) return true;
  Direction& direction = sends ? static_cast<Direction&>(outbound_[static_cast<size_t>(to)])
                               : inbound_[static_cast<size_t>(from)];
  direction.state = State::kClosed;
  return false;
}

void Pairs::opened(int from, int to, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (left_) return;
  if (group_.rank == to) {
    Inbound& inbound = inbound_[static_cast<size_t>(from)];
    if (error) {
      lose(from, error);
      inbound.state = State::kClosed;  // the next receive may try again
    } else {
      inbound.state = State::kOpen;
      progress(from);
    }
    return;
  }
  Outbound& outbound = outbound_[static_cast<size_t>(to)];
  outbound.state = error ? State::kClosed : State::kOpen;
  for (const Message& message : std::exchange(outbound.queue, {})) {
    if (error)
      message.operation->end(error);
    else
      start_send(outbound, message);
  }
}

// ---- sending

void Pairs::send(int to, Message message) {
  const std::lock_guard lock(mutex_);
  if (left_) return message.operation->end(left_error());
  if (sends_.size() >= prune_at_) {
    std::erase_if(sends_, [](const auto& other) { return !running(other); });
    prune_at_ = std::max<size_t>(64, 2 * sends_.size());
  }
  sends_.push_back(message.operation);
  Outbound& outbound = outbound_[static_cast<size_t>(to)];
  if (outbound.state == State::kOpen) return start_send(outbound, message);
  outbound.queue.push_back(std::move(message));
  if (outbound.state == State::kClosed) open(group_.rank, to);
}

void Pairs::start_send(Outbound& to, const Message& message) {
  const auto header =
      std::make_shared<Header>(Header{message.tag, static_cast<int64_t>(message.flat.nbytes())});
  const auto send_header = [header](ina_context* context, ina_request** request) {
    return ina_permute_async(context, header->data(), nullptr, header->size(), INA_INT64,
                             kForwards.data(), request);
  };
  try {
    if (message.flat.nbytes() == 0) {
      message.operation->hold(header);
      return message.operation->start(to.job, send_header);
    }
    start(*to.job, send_header, [header](int) {});
    message.operation->start(to.job, [&](ina_context* context, ina_request** request) {
      return send_bytes(context, message.flat, request);
    });
  } catch (...) {
    message.operation->end(std::current_exception());
  }
}

// ---- receiving

void Pairs::receive(Receive receive) {
  const std::lock_guard lock(mutex_);
  if (left_) return receive.message.operation->end(left_error());
  const int from = receive.from;
  if (from != kAnySource) {
    const Inbound& inbound = inbound_[static_cast<size_t>(from)];
    const bool kept = std::ranges::any_of(
        inbound.stored, [&](const Stored& stored) { return stored.tag == receive.message.tag; });
    if (inbound.state == State::kLost && !kept)
      return receive.message.operation->end(inbound.error);
  }
  receives_.push_back(std::move(receive));
  if (from != kAnySource) {
    if (inbound_[static_cast<size_t>(from)].state == State::kClosed) open(from, group_.rank);
    return progress(from);
  }
  for (int rank = 0; rank < group_.size; ++rank) progress(rank);
  look_for_senders();
}

void Pairs::progress(int from) {
  Inbound& inbound = inbound_[static_cast<size_t>(from)];
  deliver_stored(from);
  if (inbound.state != State::kOpen) return;
  try {
    while (!inbound.busy && wanted(from)) {
      if (!inbound.arrived)
        listen(from);
      else if (!accept(from))
        store_message(from);
    }
  } catch (...) {
    lose(from, std::current_exception());
  }
}

bool Pairs::wanted(int from) const {
  return std::ranges::any_of(receives_, [&](const Receive& r) { return r.takes(from); });
}

/// To receives for which the message is here already.
void Pairs::deliver_stored(int from) {
  auto& stored = inbound_[static_cast<size_t>(from)].stored;
  for (auto receive = receives_.begin(); receive != receives_.end() && !stored.empty();) {
    const auto found = std::ranges::find_if(
        stored, [&](const Stored& s) { return s.tag == receive->message.tag; });
    if (!receive->takes(from) || found == stored.end()) {
      ++receive;
      continue;
    }
    receive->source->store(from);
    Dispatcher::for_deliveries().run([message = receive->message, bytes = found->bytes, from] {
      std::exception_ptr error;
      if (message.flat.nbytes() == bytes.nbytes())
        std::memcpy(message.flat.data_ptr(), bytes.data_ptr(), bytes.nbytes());
      else
        error = wrong_size(from, message.flat.nbytes(), bytes.nbytes());
      message.operation->end(error);
    });
    stored.erase(found);
    receive = receives_.erase(receive);
  }
}

std::exception_ptr Pairs::wrong_size(int from, size_t wanted_bytes, size_t found_bytes) {
  return std::make_exception_ptr(std::runtime_error(
      "ina: recv: the message of rank " + std::to_string(from) + " has " +
      std::to_string(found_bytes) + " bytes, the tensor " + std::to_string(wanted_bytes)));
}

/// Gives the message that has arrived to the first receive for it.
bool Pairs::accept(int from) {
  Inbound& inbound = inbound_[static_cast<size_t>(from)];
  const auto found = std::ranges::find_if(receives_, [&](const Receive& r) {
    return r.takes(from) && r.message.tag == inbound.arrived->front();
  });
  if (found == receives_.end()) return false;
  const Message message = found->message;
  const auto bytes = static_cast<size_t>(inbound.arrived->back());
  if (message.flat.nbytes() != bytes) {
    store_message(from);  // deliver_stored() says what is wrong
    return true;
  }
  found->source->store(from);
  receives_.erase(found);
  inbound.arrived.reset();
  if (bytes == 0) {
    message.operation->end(nullptr);
    return true;
  }
  try {
    message.operation->start(inbound.job, [&](ina_context* context, ina_request** request) {
      return receive_bytes(context, message.flat.data_ptr(), bytes, request);
    });
  } catch (...) {
    message.operation->end(std::current_exception());
    throw;
  }
  return true;
}

/// Receives the message that has arrived into memory of its own.
void Pairs::store_message(int from) {
  Inbound& inbound = inbound_[static_cast<size_t>(from)];
  const auto [tag, count] = *inbound.arrived;
  const at::Tensor bytes = at::empty({count}, at::kByte);
  inbound.arrived.reset();
  inbound.busy = true;
  if (count == 0) return keep(from, tag, bytes);
  start(
      *inbound.job,
      [&](ina_context* context, ina_request** request) {
        return receive_bytes(context, bytes.data_ptr(), bytes.nbytes(), request);
      },
      [self = shared_from_this(), from, tag = tag, bytes](int status) {
        const std::lock_guard lock(self->mutex_);
        if (status != INA_OK) return self->lose(from, self->error_of(from, status));
        self->keep(from, tag, bytes);
        self->progress(from);
      });
}

void Pairs::keep(int from, int64_t tag, const at::Tensor& bytes) {
  Inbound& inbound = inbound_[static_cast<size_t>(from)];
  inbound.stored.push_back({tag, bytes});
  inbound.busy = false;
  deliver_stored(from);
}

void Pairs::listen(int from) {
  Inbound& inbound = inbound_[static_cast<size_t>(from)];
  inbound.busy = true;
  const auto header = std::make_shared<Header>();
  start(
      *inbound.job,
      [&](ina_context* context, ina_request** request) {
        return ina_permute_async(context, nullptr, header->data(), header->size(), INA_INT64,
                                 kForwards.data(), request);
      },
      [self = shared_from_this(), from, header](int status) {
        const std::lock_guard lock(self->mutex_);
        if (status != INA_OK) return self->lose(from, self->error_of(from, status));
        Inbound& heard = self->inbound_[static_cast<size_t>(from)];
        heard.busy = false;
        heard.arrived = *header;
        self->progress(from);
      });
}

std::exception_ptr Pairs::error_of(int from, int status) const {
  const Inbound& inbound = inbound_[static_cast<size_t>(from)];
  return std::make_exception_ptr(Exception(status, "recv: " + inbound.job->last_error()));
}

/// Nothing comes from there any more. A receive from any rank goes on waiting for others: the rank
/// may have ended well.
void Pairs::lose(int from, const std::exception_ptr& error) {
  if (left_) return;
  Inbound& inbound = inbound_[static_cast<size_t>(from)];
  inbound.state = State::kLost;
  inbound.error = error;
  std::erase_if(receives_, [&](const Receive& receive) {
    if (receive.from != from) return false;
    receive.message.operation->end(error);
    return true;
  });
}

// ---- receiving from any rank

/// While a receive from any rank waits, and not all directions are open.
void Pairs::look_for_senders() {
  if (std::exchange(polling_, true)) return;
  run_thread([this](c10d::Store& store) { poll_senders(store); });
}

void Pairs::poll_senders(c10d::Store& store) {
  for (;;) {
    std::vector<int> closed;
    {
      const std::lock_guard lock(mutex_);
      const bool any = std::ranges::any_of(
          receives_, [](const Receive& receive) { return receive.from == kAnySource; });
      for (int rank = 0; any && rank < group_.size; ++rank)
        if (rank != group_.rank && inbound_[static_cast<size_t>(rank)].state == State::kClosed)
          closed.push_back(rank);
      if (left_ || closed.empty()) {
        polling_ = false;
        return;
      }
    }
    try {
      for (const int rank : closed) {
        if (!store.check({key_of(kSends, rank, group_.rank)})) continue;
        const std::lock_guard lock(mutex_);
        if (!left_ && inbound_[static_cast<size_t>(rank)].state == State::kClosed)
          open(rank, group_.rank);
      }
    } catch (...) {  // the store is gone
      const std::lock_guard lock(mutex_);
      std::erase_if(receives_, [&](const Receive& receive) {
        if (receive.from != kAnySource) return false;
        receive.message.operation->end(std::current_exception());
        return true;
      });
      polling_ = false;
      return;
    }
    std::this_thread::sleep_for(kBetweenPolls);
  }
}

// ---- the end

bool Pairs::abandon(const Operation* operation) {
  const auto late = [](const char* call, const char* advice) {
    return std::make_exception_ptr(Exception(
        INA_ERR_TIMEOUT, std::string(call) + ": the group's timeout has passed" + advice));
  };
  const std::lock_guard lock(mutex_);
  for (Outbound& outbound : outbound_)
    for (auto message = outbound.queue.begin(); message != outbound.queue.end(); ++message)
      if (message->operation.get() == operation) {
        message->operation->end(late("send", kSendAdvice));
        outbound.queue.erase(message);
        return true;
      }
  for (auto receive = receives_.begin(); receive != receives_.end(); ++receive)
    if (receive->message.operation.get() == operation) {
      receive->message.operation->end(late("recv", ", and no other rank has sent the message"));
      receives_.erase(receive);
      return true;
    }
  return false;
}

void Pairs::drain(milliseconds limit, void (*check)()) {
  std::vector<std::shared_ptr<Operation>> sends;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& send : sends_)
      if (auto alive = running(send)) sends.push_back(std::move(alive));
  }
  const auto end = Clock::now() + limit;
  for (const auto& send : sends)
    send->wait(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - Clock::now())),
               check);
}

void Pairs::leave(milliseconds timeout) {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(left_, true)) return;
    for (Outbound& outbound : outbound_) {
      if (outbound.job) jobs.push_back(outbound.job);
      for (const Message& message : std::exchange(outbound.queue, {}))
        message.operation->end(left_error());
    }
    for (const Inbound& inbound : inbound_)
      if (inbound.job) jobs.push_back(inbound.job);
    for (const Receive& receive : std::exchange(receives_, {}))
      receive.message.operation->end(left_error());
    store_.reset();
  }
  // As at the end of the process.
  std::ranges::sort(jobs, {}, [](const auto& job) { return job->options().name; });
  const auto deadline = Clock::now() + timeout;
  {
    std::unique_lock lock(mutex_);
    thread_ended_.wait_for(lock, std::min(timeout, kForThreads), [&] { return threads_ == 0; });
  }
  for (const auto& job : jobs)
    job->leave(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

}  // namespace ina::plugin

// The objects behind the handles of the C interface, and the common part of all its functions. For
// the files that implement ina.h.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "client/context.h"
#include "client/hierarchy.h"
#include "common/system_text.h"
#include "ina/ina.h"

// A request is its operation; the context comes with it, and the hierarchy if it is of one.
struct ina_request {
  ina_context* context = nullptr;
  ina::client::Operation* operation = nullptr;
  uint32_t group = 0;               ///< that was open when it was made
  ina_callback callback = nullptr;  ///< to be called once it is complete; then it is the library's
  void* user = nullptr;
  std::shared_ptr<ina::client::Hierarchy> hierarchy{};

  // The object that carries its operation out.
  inline ina::client::WaitEnd wait(ina::Nanos timeout_ns, bool give_up) const;
  inline int test() const;
  inline void call_back(void (*call)(void* argument, int status));
};

struct ina_context {
  std::shared_ptr<ina::client::Context> impl;

  /// Requests are used again, and live until the context ends.
  ina_request* new_request() {
    const std::lock_guard lock(mutex);
    if (spare.empty()) {
      spare.reserve(requests.size() + 1);
      requests.push_back(std::make_unique<ina_request>());
      spare.push_back(requests.back().get());
    }
    ina_request* request = spare.back();
    spare.pop_back();
    *request = {};
    request->context = this;
    return request;
  }
  void release(ina_request* request) {
    request->hierarchy.reset();
    const std::lock_guard lock(mutex);
    spare.push_back(request);
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<ina_request>> requests;
  std::vector<ina_request*> spare;  ///< with capacity for all
};

ina::client::WaitEnd ina_request::wait(ina::Nanos timeout_ns, bool give_up) const {
  if (!hierarchy) return context->impl->wait(operation, timeout_ns, give_up);
  const auto waited = hierarchy->wait(operation, timeout_ns, give_up);
  if (waited.status != INA_OK) context->impl->set_error(waited.status, hierarchy->last_error());
  return waited;
}

int ina_request::test() const {
  if (!hierarchy) return context->impl->test(operation);
  const int status = hierarchy->test(operation);
  return status < 0 ? context->impl->set_error(status, hierarchy->last_error()) : status;
}

void ina_request::call_back(void (*call)(void* argument, int status)) {
  hierarchy ? hierarchy->call_back(operation, call, this)
            : context->impl->call_back(operation, call, this);
}

namespace ina::client {

/// Text of the thread's last error without a context.
inline std::string& global_error() {
  thread_local std::string text;
  return text;
}

inline int global_failure(int status, std::string text) {
  global_error() = std::move(text);
  return status;
}

/// Runs `call` and turns exceptions (allocation, threads) into a status.
template <class F>
int guarded(F&& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return global_failure(INA_ERR_NO_MEMORY, "out of memory" + limit_text(ENOMEM));
  } catch (const std::system_error& e) {  // of a thread that cannot be started
    const Error error = system_error("cannot start a thread", e.code().value());
    return global_failure(error.status, error.text + limit_text(ENOMEM));
  } catch (const std::exception& e) {
    return global_failure(INA_ERR_INTERNAL, e.what());
  }
}

inline int check_context(const ina_context* context, const char* function) {
  if (!context) return global_failure(INA_ERR_INVALID, std::string(function) + ": context is NULL");
  if (context->impl->forked())
    return global_failure(INA_ERR_FORKED, std::string(function) +
                                              ": the context belongs to the parent process; join "
                                              "again in the child");
  return INA_OK;
}

/// A caller's `timeout_us` in nanoseconds. INA_ERR_INVALID: it is negative. A time that is longer
/// than a clock counts is as good as the longest.
inline Result<Nanos> timeout_of(const char* function, int64_t timeout_us) {
  constexpr int64_t kLongestUs = int64_t{1} << 50;
  if (timeout_us >= 0) return std::min(timeout_us, kLongestUs) * 1000;
  return fail(INA_ERR_INVALID, std::string(function) + ": timeout_us " +
                                   std::to_string(timeout_us) +
                                   " is negative; 0 stands for the context's timeout");
}

inline int fail_with(ina_context* context, const Error& error) {
  return context->impl->set_error(error.status, error.text);
}

/// A blocking call of `function`. `start()` gives the Result<Operation*>.
template <class Start>
int start_and_wait(ina_context* context, const char* function, int64_t timeout_us, Start&& start) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, function); status != INA_OK) return status;
    const auto timeout_ns = timeout_of(function, timeout_us);
    if (!timeout_ns) return fail_with(context, timeout_ns.error());
    if (const int status = context->impl->refuse_in_group(function); status != INA_OK)
      return status;
    const auto started = start();
    if (!started) return fail_with(context, started.error());
    return context->impl->wait(*started, *timeout_ns, true).status;
  });
}

/// An asynchronous call of `function`. `start()` gives the Result<Operation*>.
template <class Start>
int start_with_request(ina_context* context, const char* function, ina_request** request,
                       Start&& start) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, function); status != INA_OK) return status;
    if (!request)
      return context->impl->set_error(INA_ERR_INVALID, std::string(function) + ": request is NULL");
    *request = nullptr;
    ina_request* made = context->new_request();
    const int status = guarded([&]() -> int {
      const auto started = start();
      if (!started) return fail_with(context, started.error());
      made->operation = *started;
      return INA_OK;
    });
    if (status != INA_OK) {
      context->release(made);
      return status;
    }
    context->impl->kick_if_running();
    *request = made;
    return INA_OK;
  });
}

}  // namespace ina::client

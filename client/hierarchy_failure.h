// Why a hierarchy has failed, and the last error that it has survived.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "common/result.h"

namespace ina::client {

/// For any thread. Its lock is taken last.
class HierarchyFailure {
 public:
  /// INA_OK, or the status of the error that ended the hierarchy.
  int status() const { return status_.load(); }
  /// Once it has failed.
  tl::unexpected<Error> error() const {
    const std::lock_guard lock(mutex_);
    return fail(static_cast<ina_status>(status()), text_);
  }
  /// The failure's text, or what note() was last told.
  std::string last_error() const {
    const std::lock_guard lock(mutex_);
    return status() != INA_OK ? text_ : noted_;
  }

  /// Once.
  void set(int status, const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      text_ = text;
    }
    status_ = status;
  }
  void note(std::string text) {
    const std::lock_guard lock(mutex_);
    noted_ = std::move(text);
  }

 private:
  std::atomic<int> status_{INA_OK};
  mutable std::mutex mutex_;
  std::string text_;   ///< under mutex_
  std::string noted_;  ///< under mutex_
};

}  // namespace ina::client

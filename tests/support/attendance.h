// A thread's place at a barrier.
#pragma once

#include <barrier>

namespace ina::test {

/// Takes part in a barrier, and leaves it for good however the thread ends: an assertion that fails
/// must not hold up the others.
class Attendance {
 public:
  explicit Attendance(std::barrier<>& step) : step_(step) {}
  ~Attendance() { step_.arrive_and_drop(); }
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;
  void wait() { step_.arrive_and_wait(); }

 private:
  std::barrier<>& step_;
};

}  // namespace ina::test

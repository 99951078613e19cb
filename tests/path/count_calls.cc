#include "tests/path/count_calls.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#define STANDS_IN extern "C" __attribute__((visibility("default"), used))

namespace ina::path {

namespace {

constexpr size_t kRoles = 3;
constexpr int kMaxFrames = 24;

struct Counters {
  std::atomic<uint64_t> allocations{0}, locks{0}, system_calls{0}, wake_ups{0};
  std::atomic<long> last_system_call{-1};
  std::atomic<bool> has_frames{false};
  std::array<void*, kMaxFrames> frames{};  ///< of the first call; has_frames' setter writes it
  int frame_count = 0;
};

std::atomic<bool> armed{false};
std::array<Counters, kRoles> counters;
thread_local Role role = Role::kOther;
thread_local bool counting = false;  ///< what counting does itself is not counted

Counters& counters_of(Role of) {
  return counters[static_cast<size_t>(of)];
}

void count(std::atomic<uint64_t> Counters::*which) {
  if (role == Role::kOther || counting || !armed.load(std::memory_order_relaxed)) return;
  counting = true;
  Counters& mine = counters_of(role);
  (mine.*which).fetch_add(1);
  const bool allowed = role == Role::kClient && which == &Counters::locks;
  if (!allowed && !mine.has_frames.exchange(true))
    mine.frame_count = ::backtrace(mine.frames.data(), kMaxFrames);
  counting = false;
}

/// The C library's own. `version`: of a symbol that has several.
template <class F>
F* next(const char* name, const char* version = nullptr) {
  void* found = version ? ::dlvsym(RTLD_NEXT, name, version) : nullptr;
  if (!found) found = ::dlsym(RTLD_NEXT, name);
  return reinterpret_cast<F*>(found);
}

}  // namespace

void set_role(Role of) {
  role = of;
}

void arm() {
  // Its first call loads a library.
  void* frame = nullptr;
  ::backtrace(&frame, 1);
  for (Counters& each : counters) {
    each.allocations = each.locks = each.system_calls = each.wake_ups = 0;
    each.last_system_call = -1;
    each.has_frames = false;
    each.frame_count = 0;
  }
  armed.store(true);
}

void disarm() {
  armed.store(false);
}

Counts counts_of(Role of) {
  const Counters& its = counters_of(of);
  return {its.allocations, its.locks, its.system_calls, its.wake_ups, its.last_system_call};
}

void print_first_call(Role of) {
  Counters& its = counters_of(of);
  if (its.frame_count != 0)
    ::backtrace_symbols_fd(its.frames.data(), its.frame_count, STDERR_FILENO);
}

}  // namespace ina::path

// ---- memory. glibc exports its own under these names; dlsym would allocate.

using ina::path::count;
using ina::path::Counters;

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

STANDS_IN void* malloc(size_t bytes) {
  count(&Counters::allocations);
  return __libc_malloc(bytes);
}
STANDS_IN void* calloc(size_t n, size_t bytes) {
  count(&Counters::allocations);
  return __libc_calloc(n, bytes);
}
STANDS_IN void* realloc(void* memory, size_t bytes) {
  count(&Counters::allocations);
  return __libc_realloc(memory, bytes);
}
STANDS_IN void free(void* memory) {
  if (memory) count(&Counters::allocations);
  __libc_free(memory);
}
STANDS_IN void* memalign(size_t alignment, size_t bytes) {
  count(&Counters::allocations);
  return __libc_memalign(alignment, bytes);
}
STANDS_IN void* aligned_alloc(size_t alignment, size_t bytes) {
  count(&Counters::allocations);
  return __libc_memalign(alignment, bytes);
}
STANDS_IN int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  count(&Counters::allocations);
  void* made = __libc_memalign(alignment, bytes);
  if (!made) return ENOMEM;
  *memory = made;
  return 0;
}

// ---- locks

#define LOCK(name, parameters, arguments, ...)                                      \
  STANDS_IN int name parameters {                                                   \
    static auto* const own = ina::path::next<int parameters>(#name, ##__VA_ARGS__); \
    count(&Counters::locks);                                                        \
    return own arguments;                                                           \
  }

LOCK(pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
LOCK(pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))
LOCK(pthread_mutex_timedlock, (pthread_mutex_t * mutex, const timespec* time), (mutex, time))
LOCK(pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
LOCK(pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
LOCK(pthread_cond_wait, (pthread_cond_t * cond, pthread_mutex_t* mutex), (cond, mutex),
     "GLIBC_2.3.2")
LOCK(pthread_cond_timedwait, (pthread_cond_t * cond, pthread_mutex_t* mutex, const timespec* time),
     (cond, mutex, time), "GLIBC_2.3.2")
LOCK(pthread_cond_clockwait,
     (pthread_cond_t * cond, pthread_mutex_t* mutex, clockid_t clock, const timespec* time),
     (cond, mutex, clock, time))
LOCK(pthread_cond_signal, (pthread_cond_t * cond), (cond), "GLIBC_2.3.2")
LOCK(pthread_cond_broadcast, (pthread_cond_t * cond), (cond), "GLIBC_2.3.2")

// ---- system calls

// The filter lets through what comes from here, so that a trapped call can be carried out.
asm(R"(
  .text
  .type ina_path_syscall, @function
ina_path_syscall:
  movq %rdi, %rax
  movq %rsi, %rcx
  movq 0(%rcx), %rdi
  movq 8(%rcx), %rsi
  movq 16(%rcx), %rdx
  movq 24(%rcx), %r10
  movq 32(%rcx), %r8
  movq 40(%rcx), %r9
  syscall
ina_path_after_syscall:
  ret
  .size ina_path_syscall, . - ina_path_syscall
)");
extern "C" long ina_path_syscall(long number, const long* arguments);
extern "C" const char ina_path_after_syscall[];  // NOLINT(readability-identifier-naming)

namespace ina::path {

namespace {

constexpr int kTrapped = 1;  // SYS_SECCOMP, which not every header has

/// One thread at a time is asked to trap its calls.
std::atomic<int> trap_error{-1};

/// Where the kernel offers no clock without a system call.
bool reads_clock(long number) {
  return number == SYS_clock_gettime || number == SYS_gettimeofday;
}

/// Waking a futex, or writing to an event descriptor.
bool wakes(long number, const gregset_t& registers) {
  if (number == SYS_futex) return (registers[REG_RSI] & FUTEX_CMD_MASK) == FUTEX_WAKE;
  return number == SYS_write && registers[REG_RDX] == sizeof(uint64_t);
}

/// Runs on a stack of its own: a thread that ends gives back what its own stack does not use.
/// Changes of the signal mask are lost on return, which a thread makes only when it ends.
void on_system_call(int, siginfo_t* info, void* context) {
  if (info->si_code != kTrapped) return;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long number = info->si_syscall;
  if (armed.load(std::memory_order_relaxed) && !reads_clock(number)) {
    Counters& mine = counters_of(role);
    if (wakes(number, registers)) {
      mine.wake_ups.fetch_add(1);
    } else {
      mine.system_calls.fetch_add(1);
      mine.last_system_call.store(number);
    }
  }
  const long arguments[] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                            registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
  registers[REG_RAX] = ina_path_syscall(number, arguments);
}

int install_filter() {
  alignas(16) static thread_local std::byte stack[64 << 10];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof(stack);
  if (::sigaltstack(&alternate, nullptr) != 0) return errno;
  const auto gate = reinterpret_cast<uint64_t>(ina_path_after_syscall);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 5, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(gate), 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(gate >> 32), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  // Without it only root may install a filter. Both hold for this thread alone.
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) return errno;
  return 0;
}

void on_request(int) {
  const int before = errno;
  trap_error.store(install_filter());
  errno = before;
}

}  // namespace

bool trap_system_calls(pid_t thread) {
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = on_system_call;
  struct sigaction request {};
  request.sa_flags = SA_RESTART;
  request.sa_handler = on_request;
  if (::sigaction(SIGSYS, &action, nullptr) != 0) return false;
  if (::sigaction(SIGUSR2, &request, nullptr) != 0) return false;
  trap_error.store(-1);
  if (::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2) != 0) return false;
  while (trap_error.load() == -1) ::usleep(100);
  errno = trap_error.load();
  return errno == 0;
}

}  // namespace ina::path

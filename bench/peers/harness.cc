// One rank of one competitor. It joins its library's job, reports to the orchestrator
// (scripts/benchlib/teams.py) over a unix socket, and sleeps in read() while others are measured.
//
// Said by the rank:      hello RANK RANKS PID MODE[,MODE...] VERSION  (modes of an all-reduce)
// Asked, and answered:   modes COLLECTIVE                 -> modes [MODE...]
//                        check MODE BYTES [COLLECTIVE]    -> ok | wrong TEXT
//                        run MODE BYTES K [COLLECTIVE]    -> times W NS[ NS...]  (W warm-ups)
//                        release                          -> ok
// Any failure:           error TEXT, and the process ends. So it does at the end of the connection.
//
// The time of an operation on a rank: from the moment when the last rank arrived at the start line
// to the moment when the library's call has returned here.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "bench/peers/backend.h"
#include "bench/peers/start_line.h"
#include "bench/perf/pattern.h"
#include "common/command_line.h"

namespace ina::peers {

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

namespace {

float* map_floats(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::runtime_error(fmt::format("no memory for a buffer of {} bytes", bytes));
  return static_cast<float*>(memory);
}

}  // namespace

void PlainBuffers::allocate(uint64_t send_elements, uint64_t recv_elements) {
  release();
  send_ = map_floats(send_elements * sizeof(float));
  send_bytes_ = send_elements * sizeof(float);
  recv_ = map_floats(recv_elements * sizeof(float));
  recv_bytes_ = recv_elements * sizeof(float);
}

void PlainBuffers::release() {
  if (send_ != nullptr) munmap(send_, send_bytes_);
  if (recv_ != nullptr) munmap(recv_, recv_bytes_);
  send_ = recv_ = nullptr;
}

namespace {

constexpr int kWarmUps = 2;
constexpr uint64_t kLargeBytes = 4 << 20;  ///< needs no more than one to be warm

struct Options {
  Place place;
  std::string socket;
  std::string area;
  bool bind = false;
};

/// The orchestrator's end of the conversation.
class Line {
 public:
  explicit Line(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error("socket path too long");
    path.copy(address.sun_path, path.size());
    if (fd_ < 0 || connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error(fmt::format("{}: {}", path, strerror(errno)));
  }
  ~Line() { close(fd_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void say(std::string text) {
    text += '\n';
    for (size_t done = 0; done < text.size();) {
      const ssize_t sent = send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) throw std::runtime_error("the orchestrator is gone");
      if (sent > 0) done += static_cast<size_t>(sent);
    }
  }

  /// Sleeps until a line is there; false at the end of the connection.
  bool hear(std::string& line) {
    for (;;) {
      const size_t end = heard_.find('\n');
      if (end != std::string::npos) {
        line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return true;
      }
      char piece[512];
      const ssize_t bytes = read(fd_, piece, sizeof piece);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return false;
      heard_.append(piece, static_cast<size_t>(bytes));
    }
  }

 private:
  int fd_;
  std::string heard_;
};

StartLineArea& map_area(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error(fmt::format("{}: {}", path, strerror(errno)));
  void* memory = mmap(nullptr, sizeof(StartLineArea), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) throw std::runtime_error(fmt::format("{}: {}", path, strerror(errno)));
  return *static_cast<StartLineArea*>(memory);
}

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// Binds this process, with the threads its library makes, to the rank-th core it may use.
void bind_to_core(int rank) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != rank) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

class Rank {
 public:
  Rank(Backend& backend, StartLineArea& area, int cores)
      : backend_(backend), start_line_(area, backend.ranks(), cores) {}

  std::string answer(const std::string& request) {
    std::istringstream words(request);
    std::string verb;
    std::string mode;
    std::string collective;
    size_t bytes = 0;
    int operations = 0;
    words >> verb;
    if (verb == "modes") {
      words >> collective;
      return fmt::format("modes {}", fmt::join(backend_.modes(collective_of(collective)), " "));
    }
    if (verb == "release") {
      release();
      return "ok";
    }
    words >> mode >> bytes;
    if (verb == "run") words >> operations;
    if (!words) throw std::runtime_error("cannot be understood: " + request);
    words >> collective;
    use(mode, collective.empty() ? perf::Collective::kAllreduce : collective_of(collective), bytes);
    if (verb == "check") return check();
    if (verb == "run" && operations > 0) return run(operations);
    throw std::runtime_error("cannot be understood: " + request);
  }

 private:
  static perf::Collective collective_of(const std::string& name) {
    for (const perf::Collective collective : perf::kAllCollectives)
      if (perf::name(collective) == name) return collective;
    throw std::runtime_error("no such collective: " + name);
  }

  void release() {
    if (allocated_) backend_.release();
    allocated_ = false;
    buffers_ = {};
  }

  void use(const std::string& mode, perf::Collective collective, size_t bytes) {
    const int ranks = backend_.ranks();
    const uint64_t whole = perf::whole_elements(collective, bytes, sizeof(float), ranks);
    if (whole == 0 && collective != perf::Collective::kBarrier)
      throw std::runtime_error(fmt::format("{} bytes have no element for each rank", bytes));
    if (allocated_ && operation_.whole == whole && operation_.collective == collective &&
        mode_ == mode)
      return;
    release();
    operation_ = {collective, whole, perf::shape_of(collective, whole, backend_.rank(), ranks)};
    buffers_ = backend_.allocate(mode, operation_);
    allocated_ = true;
    mode_ = mode;
    fill(0);
  }

  std::span<float> send() const { return {buffers_.send, operation_.shape.send}; }

  void fill(uint32_t round) {
    perf::fill(std::as_writable_bytes(send()), input_of(backend_.rank(), round));
  }

  std::vector<std::byte> input_of(int rank, uint32_t round) const {
    return perf::input_block(INA_FLOAT32, INA_SUM, rank, backend_.ranks(), round);
  }

  /// Returns how long it took, from the common start to the end on this rank.
  int64_t operation() {
    backend_.prepare();
    const int64_t start_ns = start();
    backend_.run();
    return now_ns() - start_ns;
  }

  int64_t start() {
    return start_line_.wait([this] { backend_.progress(); });
  }

  std::string run(int operations) {
    const int warm_ups = operation_.whole * sizeof(float) > kLargeBytes ? 1 : kWarmUps;
    for (int i = 0; i < warm_ups; ++i) operation();
    std::vector<int64_t> times_ns(static_cast<size_t>(operations));
    for (int64_t& time_ns : times_ns) time_ns = operation();
    start();  // nobody goes to sleep while another still needs it
    return fmt::format("times {} {}", warm_ups, fmt::join(times_ns, " "));
  }

  /// An operation on fresh inputs, after one on others: the old contents of the result buffer must
  /// not look like the result. Every element of result and input is compared.
  std::string check() {
    std::string wrong;
    for (const uint32_t round : {++round_, ++round_}) {
      fill(round);
      operation();
      if (wrong.empty()) wrong = compare(round);
      start();  // results may be shared memory: nobody overwrites what another still reads
    }
    return wrong.empty() ? "ok" : "wrong " + wrong;
  }

  std::string compare(uint32_t round) const {
    const int rank = backend_.rank();
    for (const perf::Segment& segment : operation_.shape.segments) {
      const auto expected =
          segment.source == perf::Segment::kResult
              ? perf::expected_block(INA_FLOAT32, INA_SUM, backend_.ranks(), round)
              : input_of(segment.source, round);
      const std::string wrong = difference(
          "result",
          std::span(buffers_.recv, operation_.shape.recv).subspan(segment.to, segment.count),
          expected, segment.from);
      if (!wrong.empty()) return wrong;
    }
    return difference("input (which was written to)", send(), input_of(rank, round), 0);
  }

  static std::string difference(const char* what, std::span<const float> buffer,
                                std::span<const std::byte> block, uint64_t first) {
    const auto at = perf::find_difference(std::as_bytes(buffer), block, first * sizeof(float));
    if (!at) return {};
    const size_t element = *at / sizeof(float);
    return fmt::format("{}: element {} of {} is {}", what, element, buffer.size(), buffer[element]);
  }

  Backend& backend_;
  StartLine start_line_;
  bool allocated_ = false;
  Operation operation_;
  Buffers buffers_;
  std::string mode_;
  uint32_t round_ = 0;
};

int run(const Options& options) {
  const int cores = allowed_cores();
  // Before the library makes its threads, where the rank is known by then.
  if (options.bind && options.place.rank >= 0) bind_to_core(options.place.rank);
  const auto backend = make_backend(options.place);
  if (options.bind && options.place.rank < 0) bind_to_core(backend->rank());
  Line line(options.socket);
  line.say(fmt::format("hello {} {} {} {} {}", backend->rank(), backend->ranks(), getpid(),
                       fmt::join(backend->modes(perf::Collective::kAllreduce), ","),
                       backend->version()));
  try {
    Rank rank(*backend, map_area(options.area), cores);
    for (std::string request; line.hear(request);) line.say(rank.answer(request));
  } catch (const std::exception& error) {
    line.say(fmt::format("error {}", error.what()));
    throw;
  }
  return 0;
}

}  // namespace
}  // namespace ina::peers

int main(int argc, char** argv) {
  // A rank without its launcher would wait for peers that nobody ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ina::peers::Options options;
  ina::command_line::App app{"One rank of a competitor; started by scripts/benchlib/teams.py."};
  app.add_option("--socket", options.socket)->required();
  app.add_option("--area", options.area)->required();
  app.add_option("--url", options.place.url);
  app.add_option("--rendezvous", options.place.rendezvous);
  app.add_option("--address", options.place.address);
  app.add_option("--slot-bytes", options.place.slot_bytes);
  app.add_option("--window", options.place.window);
  app.add_option("--rank", options.place.rank);
  app.add_option("--ranks", options.place.ranks);
  app.add_flag("--bind", options.bind);
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  try {
    return ina::peers::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}

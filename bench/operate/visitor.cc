// A client that asks the switch over HTTP again and again, for ./dev bench operate. It shares the
// processors with the job that is measured, so it does as little as a client can.
//
//   ina-visitor PORT PATH...     a visit asks for all paths
//   ina-visitor compute          a visit only computes
//
// Each line of its input is "START PERIOD VISITS BUSY": the first visit's time (CLOCK_MONOTONIC,
// ns), the time from one to the next, in seconds, their number, and the processor time of one that
// computes, in ms. The answer is a line with the processor time of all visits and the time that
// each took, in ms.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "common/fd.h"

namespace {

constexpr time_t kPatienceS = 10;
constexpr double kNsPerMs = 1e6;

int64_t time_ns(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

class Visitor {
 public:
  Visitor(uint16_t port, const std::vector<std::string>& paths) {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(port);
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (const std::string& path : paths)
      requests_.push_back("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  }

  void visit() {
    for (const std::string& request : requests_) ask(request);
  }

 private:
  void ask(const std::string& request) {
    const ina::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{kPatienceS, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) !=
            0 ||
        ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(request.size()))
      throw std::runtime_error("the switch cannot be asked");
    size_t got = receive(socket);
    for (const size_t whole = size_of({answer_.data(), got}); got < whole;) got += receive(socket);
  }

  size_t receive(const ina::Fd& socket) {
    const ssize_t got = ::recv(socket.get(), answer_.data(), answer_.size(), 0);
    if (got <= 0) throw std::runtime_error("an answer, or its end, does not come");
    return static_cast<size_t>(got);
  }

  /// Bytes of the answer that begins so. The switch sends the head at once.
  static size_t size_of(std::string_view begun) {
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const size_t at = begun.find(kLength);
    const size_t body = begun.find("\r\n\r\n");
    size_t length = 0;
    if (!begun.starts_with("HTTP/1.1 200 ") || body == std::string_view::npos || at > body ||
        std::from_chars(begun.data() + at + kLength.size(), begun.data() + body, length).ec !=
            std::errc())
      throw std::runtime_error("refused: " + std::string(begun.substr(0, body)));
    return body + 4 + length;
  }

  sockaddr_in address_{};
  std::vector<std::string> requests_;
  std::array<char, 1 << 16> answer_;  ///< a part of it
};

void compute(double busy_ms) {
  const int64_t until = time_ns(CLOCK_THREAD_CPUTIME_ID) + static_cast<int64_t>(busy_ms * kNsPerMs);
  while (time_ns(CLOCK_THREAD_CPUTIME_ID) < until) {
  }
}

struct Order {
  int64_t start_ns = 0;
  double period_s = 0;
  int visits = 0;
  double busy_ms = 0;
};

template <class Visit>
void carry_out(const Order& order, Visit visit) {
  const int64_t cpu_before = time_ns(CLOCK_PROCESS_CPUTIME_ID);
  std::vector<double> took_ms;
  for (int number = 0; number < order.visits; ++number) {
    const int64_t due = order.start_ns + static_cast<int64_t>(number * order.period_s * 1e9);
    const timespec until{due / 1'000'000'000, due % 1'000'000'000};
    ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    const int64_t began = time_ns(CLOCK_MONOTONIC);
    visit();
    took_ms.push_back(static_cast<double>(time_ns(CLOCK_MONOTONIC) - began) / kNsPerMs);
  }
  std::printf("%f", static_cast<double>(time_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before) / kNsPerMs);
  for (const double ms : took_ms) std::printf(" %f", ms);
  std::printf("\n");
  std::fflush(stdout);
}

/// Calls `carry` with each order of the input.
template <class Carry>
void take_orders(Carry carry) {
  Order order;
  while (std::scanf("%" SCNd64 " %lf %d %lf", &order.start_ns, &order.period_s, &order.visits,
                    &order.busy_ms) == 4)
    carry(order);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 && argv[1] == std::string_view("compute")) {
    take_orders([](const Order& order) { carry_out(order, [&] { compute(order.busy_ms); }); });
    return 0;
  }
  if (argc < 3) {
    std::fprintf(stderr, "usage: ina-visitor PORT PATH... | compute\n");
    return 2;
  }
  Visitor visitor(static_cast<uint16_t>(std::strtoul(argv[1], nullptr, 10)),
                  {argv + 2, argv + argc});
  take_orders([&](const Order& order) { carry_out(order, [&] { visitor.visit(); }); });
} catch (const std::exception& error) {
  std::fprintf(stderr, "ina-visitor: %s\n", error.what());
  return 1;
}

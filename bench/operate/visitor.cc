// A client that asks the switch over HTTP again and again, for ./dev bench operate. It shares the
// processors with the job that is measured, so it does as little as a client can.
//
//   ina-visitor PORT PATH...
//
// Each line of its input is "SECONDS PERIOD": for so long, all paths are asked for once a period.
// The answer is a line with the processor time of that and the time of each visit, in ms.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <charconv>
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

  /// Of the answer that begins so. The switch sends the head at once.
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

void visit_for(Visitor& visitor, double seconds, double period) {
  const int64_t cpu_before = time_ns(CLOCK_PROCESS_CPUTIME_ID);
  int64_t next = time_ns(CLOCK_MONOTONIC);
  const int64_t end = next + static_cast<int64_t>(seconds * 1e9);
  std::vector<double> took_ms;
  while (next < end) {
    const int64_t began = time_ns(CLOCK_MONOTONIC);
    visitor.visit();
    took_ms.push_back(static_cast<double>(time_ns(CLOCK_MONOTONIC) - began) * 1e-6);
    next += static_cast<int64_t>(period * 1e9);
    const timespec until{next / 1'000'000'000, next % 1'000'000'000};
    if (next < end) ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }
  std::printf("%f", static_cast<double>(time_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before) * 1e-6);
  for (const double ms : took_ms) std::printf(" %f", ms);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: ina-visitor PORT PATH...\n");
    return 2;
  }
  Visitor visitor(static_cast<uint16_t>(std::strtoul(argv[1], nullptr, 10)),
                  {argv + 2, argv + argc});
  double seconds = 0, period = 0;
  while (std::scanf("%lf %lf", &seconds, &period) == 2) visit_for(visitor, seconds, period);
} catch (const std::exception& error) {
  std::fprintf(stderr, "ina-visitor: %s\n", error.what());
  return 1;
}

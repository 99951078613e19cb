// The control socket of a whole switch against workers that send anything: the switch goes on
// answering, and when they are gone it has no job left.
//
// Input: one line a message. Its first byte has the number of one of four connections (bits 0 and
// 1). It says whether a memory file goes with it (bit 2), and whether the connection is closed
// afterwards (bit 3). The rest of the line is sent as it stands.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string_view>

#include "common/sealed_memory.h"
#include "tests/fuzz/check.h"
#include "tests/support/switch_fixture.h"

namespace {

using namespace ina;

constexpr Nanos kDeadlineNs = 10'000'000'000;
constexpr size_t kMaxLines = 64;

void send_raw(int socket, std::string_view text, int descriptor) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))];
  if (descriptor >= 0) {
    header.msg_control = space;
    header.msg_controllen = sizeof space;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  // A switch that has closed the connection is in its right.
  (void)::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

Fd worker_region() {
  Fd file(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string zeros(1 << 20, '\0');
  INA_FUZZ_CHECK(file && ::write(file.get(), zeros.data(), zeros.size()) == 1 << 20);
  ::fcntl(file.get(), F_ADD_SEALS, kRegionSeals);
  return file;
}

test::TestSwitch& the_switch() {
  static auto* sw = [] {
    spdlog::set_level(spdlog::level::off);
    return new test::TestSwitch(
        {.slots = 64, .slot_bytes = 64, .slots_per_job = 16, .max_jobs = 4});
  }();
  return *sw;
}

/// Jobs end when their workers' connections do, which the switch notices in its own time.
void await_no_jobs() {
  for (Nanos waited_us = 0;; waited_us += 100) {
    const auto status = control::query_status(the_switch().socket_path(), kDeadlineNs);
    INA_FUZZ_CHECK(status && status->contains("jobs"));
    if (status->at("jobs").empty()) return;
    INA_FUZZ_CHECK(waited_us * 1000 < kDeadlineNs);
    ::usleep(100);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::array<control::Connection, 4> connections;
  for (size_t lines = 0; !rest.empty() && lines < kMaxLines; ++lines) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    const auto options = static_cast<uint8_t>(line[0]);
    control::Connection& connection = connections[options & 3];
    if (!connection) {
      auto opened = control::Connection::open(the_switch().socket_path(), kDeadlineNs);
      INA_FUZZ_CHECK(opened);
      connection = std::move(*opened);
    }
    const Fd file = options & 4 ? worker_region() : Fd();
    send_raw(connection.fd(), line.substr(1), file.get());
    if (options & 8) connection.close();
  }
  // Answers are JSON objects, as many as there are until the switch is done or has closed.
  for (control::Connection& connection : connections) {
    if (!connection) continue;
    for (;;) {
      const auto answer = connection.receive(0);
      INA_FUZZ_CHECK(answer || answer.error().status == INA_ERR_SWITCH_LOST);
      if (!answer || !*answer) break;
      INA_FUZZ_CHECK((*answer)->body.contains("type") || (*answer)->fds.size() == 1);
    }
    connection.close();
  }
  await_no_jobs();
  return 0;
}

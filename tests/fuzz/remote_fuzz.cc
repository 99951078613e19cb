// The control connection over TCP, from strangers and from peers with a token or a ticket. The
// stream hands over the messages in the bytes and no others, with any cuts. The switch goes on
// answering, and afterwards nothing is left but an administrator's jobs.
//
// Input: one line a message. Its first byte has the number of one of two connections (bit 0). It
// says whether the message is framed (bit 1) or the line is sent as it stands, and whether the
// connection is closed afterwards (bit 2). Bits 3 to 7 are the size of the pieces that it is cut
// into (0: none). "@K" stands for a token and "@T" for a ticket.
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/fuzz/check.h"
#include "tests/support/switch_fixture.h"

namespace {

using namespace ina;

constexpr Nanos kDeadlineNs = 10'000'000'000;
constexpr size_t kMaxLines = 32;
constexpr size_t kMaxMessageBytes = control::kMaxMessageBytes;
const std::string kToken = "fuzz-token-0123456789";

test::TestSwitch& the_switch() {
  static auto* sw = [] {
    spdlog::set_level(spdlog::level::off);
    static const test::TempDir folder;
    const std::string tokens = folder / "tokens";
    std::ofstream(tokens) << "fuzz " << kToken << "\n";
    ::chmod(tokens.c_str(), 0600);
    return new test::TestSwitch(
        {.slots = 64,
         .slot_bytes = 256,
         .slots_per_job = 16,
         .max_jobs = 4,
         .administered = true,
         .conductor = [tokens](switchd::ConductorConfig& config) {
           config.control.listen = "127.0.0.1:0";
           config.control.token_file = tokens;
           config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
           config.tenants = {{.name = "fuzz", .jobs_max = 2, .workers_max = 8}};
           config.control.join_timeout_ns = 200'000'000;
         }});
  }();
  return *sw;
}

/// The ticket of a job that waits for its workers.
std::string ticket() {
  static std::string known;
  control::request::CreateJob request;
  request.name = "t";
  request.workers = 2;
  request.tenant = "uid:7";
  request.ttl_ns = control::request::kMaxTtlNs;
  const auto made = the_switch().administer(request);
  INA_FUZZ_CHECK(made || made.error().text == "there is a job 't' of uid:7 already");
  if (made) known = made->at("ticket");
  return known;
}

void replace_all(std::string& text, std::string_view what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

std::string framed(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < 4; ++i)
    bytes += static_cast<char>(static_cast<uint8_t>(text.size() >> (8 * i)));
  return bytes + text;
}

/// The right outcome of a stream for `bytes`: the messages, and whether it then refuses the rest.
struct Expected {
  std::vector<std::string> messages;
  bool refused = false;
};
Expected expected_of(std::string_view bytes) {
  Expected expected;
  while (bytes.size() >= 4) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length |= size_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    expected.refused = length == 0 || length > kMaxMessageBytes;
    if (expected.refused || bytes.size() - 4 < length) break;
    expected.messages.emplace_back(bytes.substr(4, length));
    bytes.remove_prefix(4 + length);
  }
  return expected;
}

/// The stream alone, fed piece by piece.
void check_stream(const std::vector<std::string>& pieces) {
  int ends[2];
  INA_FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd in(ends[0]), out(ends[1]);
  control::Stream stream({kMaxMessageBytes, kMaxMessageBytes});
  std::vector<std::string> messages;
  std::string bytes;
  bool refused = false;
  for (const std::string& piece : pieces) {
    if (refused) break;
    if (piece.empty()) continue;
    bytes += piece;
    INA_FUZZ_CHECK(::send(in.get(), piece.data(), piece.size(), 0) ==
                   static_cast<ssize_t>(piece.size()));
    for (;;) {
      const auto message = stream.receive(out.get());
      refused = !message;
      if (refused) INA_FUZZ_CHECK(message.error().status == INA_ERR_INVALID);
      if (refused || !*message) break;
      messages.push_back(**message);
    }
  }
  const Expected expected = expected_of(bytes);
  INA_FUZZ_CHECK(messages == expected.messages);
  INA_FUZZ_CHECK(refused == expected.refused);
}

struct Stranger {
  Fd fd;
  std::vector<std::string> pieces;  ///< what it has said
};

void hang_up(Stranger& stranger) {
  if (!stranger.fd) return;
  check_stream(stranger.pieces);
  // Leaves no socket behind that waits for its time.
  const linger at_once{1, 0};
  ::setsockopt(stranger.fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  stranger = {};
}

/// Jobs end when their workers' connections do, which the switch notices in its own time.
void await_no_jobs() {
  for (Nanos waited_us = 0;; waited_us += 100) {
    const auto status = control::query_status(the_switch().socket_path(), kDeadlineNs);
    INA_FUZZ_CHECK(status && status->contains("jobs"));
    bool left = false;
    for (const auto& job : status->at("jobs")) left = left || !job.contains("reserved_s");
    if (!left) return;
    INA_FUZZ_CHECK(waited_us * 1000 < kDeadlineNs);
    ::usleep(100);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string secret = ticket();
  std::array<Stranger, 2> strangers;
  for (size_t lines = 0; !rest.empty() && lines < kMaxLines; ++lines) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    const auto options = static_cast<uint8_t>(line[0]);
    Stranger& stranger = strangers[options & 1];
    if (!stranger.fd) {
      std::string why;
      auto fd =
          control::connect_tcp(*control::tcp_address(the_switch().tcp_address()), kDeadlineNs, why);
      INA_FUZZ_CHECK(fd && *fd);
      stranger.fd = std::move(*fd);
    }
    std::string bytes(line.substr(1));
    replace_all(bytes, "@K", kToken);
    replace_all(bytes, "@T", secret);
    if (options & 2) bytes = framed(bytes);
    const size_t step = options >> 3 == 0 ? bytes.size() : options >> 3;
    for (size_t at = 0; at < bytes.size(); at += step) {
      stranger.pieces.push_back(bytes.substr(at, step));
      const std::string& piece = stranger.pieces.back();
      // A switch that has closed the connection is in its right.
      (void)::send(stranger.fd.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (options & 4) hang_up(stranger);
  }
  for (Stranger& stranger : strangers) hang_up(stranger);
  await_no_jobs();
  return 0;
}

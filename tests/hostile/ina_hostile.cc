// ina-hostile: sends the frames of an attacker, fast. For ./dev bench hostile and tests/net.
//
//   ina-hostile FACTS.json
//
// FACTS.json: the attacker's knowledge (tests/hostile/facts.h). Reads orders from standard input, a
// JSON object a line, and answers each with a line:
//
//   {"attack": NAME, "packets": N, "rate_pps": R, "honest": false, "first": 0}
//       N frames of the attack, from its frame number `first` on, R a second (0: as fast as it
//       goes). `honest`: frames of the same lengths and at the same pace, but of a protocol that
//       nobody knows and to a host that ignores them.
//     -> {"sent": frames the interface took, "start_ns":, "end_ns": CLOCK_MONOTONIC}
//   {"tenant": NAME, "job":, "job_key":, "epoch":, "window":, "udp_ports": []}
//     -> {}
//   {"list": true}
//     -> {"attacks": [{"name":, "tenant":}]}
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "common/clock.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/packet_socket.h"

namespace ina::hostile {
namespace {

using Json = nlohmann::json;

void sleep_until(Nanos when) {
  const timespec until{when / 1'000'000'000, when % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

Json run_attack(const Json& order, Forge& forge, PacketSocket& socket) {
  const auto name = order.at("attack").get<std::string>();
  const auto attack = std::ranges::find(attacks(), name, &Attack::name);
  if (attack == attacks().end()) throw std::invalid_argument("no attack is called " + name);
  const auto packets = order.at("packets").get<uint64_t>();
  const double rate_pps = order.at("rate_pps");
  const bool honest = order.value("honest", false);
  const auto first = order.value("first", uint64_t{0});
  const Nanos start = now_ns();
  uint64_t sent = 0;
  for (uint64_t i = 0; i < packets; ++i) {
    attack->make(forge, first + i);
    if (honest) forge.make_honest();
    socket.add(forge.frame());
    if (!socket.full() && i + 1 != packets) continue;
    sent += socket.flush();
    if (rate_pps > 0)
      sleep_until(start + static_cast<Nanos>(static_cast<double>(i + 1) * 1e9 / rate_pps));
  }
  return {{"sent", sent}, {"start_ns", start}, {"end_ns", now_ns()}};
}

Json carry_out(const Json& order, Forge& forge, PacketSocket& socket) {
  if (order.contains("tenant")) {
    forge.set_tenant(order.at("tenant"), parse_tenant(order));
    return Json::object();
  }
  if (order.contains("list")) {
    Json list = Json::array();
    for (const Attack& attack : attacks())
      list.push_back({{"name", attack.name}, {"tenant", attack.tenant}});
    return {{"attacks", list}};
  }
  return run_attack(order, forge, socket);
}

int run(const char* facts_file) {
  std::ifstream file(facts_file);
  Forge forge(parse_facts(Json::parse(file)));
  auto socket = PacketSocket::open(forge.facts().interface);
  if (!socket) throw std::runtime_error(socket.error().text);
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{}\n", carry_out(Json::parse(line), forge, *socket).dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ina::hostile

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: ina-hostile FACTS.json\n");
    return 2;
  }
  try {
    return ina::hostile::run(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-hostile: {}\n", error.what());
    return 1;
  }
}

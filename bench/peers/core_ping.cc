// Measures the round trip between two cores each time it reads a line, and sleeps in between.
#include "bench/perf/core_ping.h"

#include <cstdio>
#include <iostream>
#include <string>

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%lld\n", static_cast<long long>(ina::perf::core_round_trip_ns()));
    std::fflush(stdout);
  }
}

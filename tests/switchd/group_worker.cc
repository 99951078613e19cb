// A worker whose job is split: groups, and groups of groups, all of which sum at the same time.
//   group_worker URL JOB RANK WORLD SPLITS ROUNDS
// Prints "ok" and the number of checked sums, or the error, and then ends with 1.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "ina/ina.hpp"

namespace {

constexpr size_t kElements = 5000;

/// One communicator, and which ranks of the job are in it.
struct Group {
  ina::Context context;
  std::vector<int> members;
};

/// Element `i` of a rank of the job.
int32_t value_of(int rank, int round, size_t i) {
  return static_cast<int32_t>(i % 1000) * (rank + 1) + round;
}

/// The part of `group` that has the same colour as this worker. `colour_of`: of a rank of the job.
template <class ColourOf>
Group split(Group& group, int rank, ColourOf&& colour_of) {
  std::vector<int> members;
  for (const int member : group.members)
    if (colour_of(member) == colour_of(rank)) members.push_back(member);
  return {*group.context.split(colour_of(rank), rank), std::move(members)};
}

/// The job at the end of them.
std::vector<Group> make_groups(Group job, int rank, int splits) {
  const auto world = static_cast<int>(job.members.size());
  std::vector<Group> groups;
  for (int number = 0; number < splits; ++number) {
    const int divisor = 1 + number % world;
    groups.push_back(split(job, rank, [&](int member) { return member % divisor; }));
    groups.push_back(split(groups.back(), rank, [&](int member) { return member / divisor % 2; }));
  }
  groups.push_back(std::move(job));
  return groups;
}

void check(const Group& group, const std::vector<int32_t>& sum, int round) {
  for (size_t i = 0; i < sum.size(); ++i) {
    int32_t expected = 0;
    for (const int member : group.members) expected += value_of(member, round, i);
    if (sum[i] != expected)
      throw std::runtime_error("element " + std::to_string(i) + " of a group of " +
                               std::to_string(group.members.size()) + " in round " +
                               std::to_string(round) + " is " + std::to_string(sum[i]) + ", not " +
                               std::to_string(expected));
  }
}

/// One sum in each group, all under way at once.
void run_round(std::vector<Group>& groups, int rank, int round) {
  std::vector<std::vector<int32_t>> sums;
  std::vector<ina::Request> requests;
  sums.reserve(groups.size());
  for (Group& group : groups) {
    auto& data = sums.emplace_back(kElements);
    for (size_t i = 0; i < kElements; ++i) data[i] = value_of(rank, round, i);
    requests.push_back(group.context.allreduce_async<int32_t>(data));
  }
  for (size_t number = 0; number < groups.size(); ++number) {
    requests[number].wait();
    check(groups[number], sums[number], round);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int rank = std::atoi(argv[3]), world = std::atoi(argv[4]);
  const int splits = std::atoi(argv[5]), rounds = std::atoi(argv[6]);
  try {
    ina_config config;
    ina_config_init(&config);
    config.url = argv[1];
    config.job = argv[2];
    config.rank = rank;
    config.world_size = world;
    std::vector<int> all(static_cast<size_t>(world));
    std::iota(all.begin(), all.end(), 0);
    auto groups = make_groups({ina::Context(config), std::move(all)}, rank, splits);
    for (int round = 0; round < rounds; ++round) run_round(groups, rank, round);
    for (Group& group : groups) group.context.finalize();
    std::printf("ok %zu\n", groups.size() * static_cast<size_t>(rounds));
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

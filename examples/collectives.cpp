// A sharded optimiser's step: each rank owns a part of the parameters. It gets the sum of the
// gradients of its part, updates it, and all ranks gather all parts. Buffers are used in place.
#include <cstdio>
#include <ina/ina.hpp>
#include <vector>

int main() {
  try {
    ina::Context context;
    const auto rank = static_cast<size_t>(context.rank());
    const auto ranks = static_cast<size_t>(context.world_size());
    constexpr size_t kPart = 25'000;

    // Rank 0 knows how to begin.
    std::vector<float> parameters(ranks * kPart, rank == 0 ? 100.0F : 0.0F);
    context.broadcast(std::span(parameters), 0);

    const std::vector<float> gradients(ranks * kPart, static_cast<float>(rank + 1));
    std::vector<float> own_gradients(kPart);
    context.reduce_scatter<float>(gradients, own_gradients);

    const auto own = std::span(parameters).subspan(rank * kPart, kPart);
    for (size_t i = 0; i < kPart; ++i) own[i] -= own_gradients[i];
    context.all_gather<float>(own, parameters);

    const float expected = 100.0F - static_cast<float>(ranks * (ranks + 1) / 2);
    for (const float parameter : parameters)
      if (parameter != expected) {
        std::fprintf(stderr, "a parameter is %g, not %g\n", parameter, expected);
        return 1;
      }
    std::printf("rank %zu of %zu: %zu parameters, each %g\n", rank, ranks, parameters.size(),
                expected);
    context.finalize();
  } catch (const ina::Exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

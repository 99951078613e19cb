// Averages many small tensors over the ranks of a job as one operation: a group. Without one, each
// all-reduce costs a message of its own. INA_COALESCE_BYTES=65536 gives the same to programs that
// know nothing of groups.
#include <cstdio>
#include <ina/ina.hpp>
#include <vector>

int main() {
  try {
    ina::Context context;
    // Biases and norms of a model: 100 tensors of some hundred elements.
    std::vector<std::vector<float>> tensors;
    for (size_t n = 0; n < 100; ++n)
      tensors.emplace_back(64 + n * 4, static_cast<float>(context.rank()));

    std::vector<ina::Request> requests;
    ina::Group group(context);
    for (auto& tensor : tensors)
      requests.push_back(context.allreduce_async(std::span(tensor), INA_AVG));
    group.end();
    for (ina::Request& request : requests) request.wait();

    const float mean = static_cast<float>(context.world_size() - 1) / 2;
    for (const auto& tensor : tensors)
      for (const float element : tensor)
        if (element != mean) {
          std::fprintf(stderr, "an element is %g, not %g\n", element, mean);
          return 1;
        }
    std::printf("rank %d of %d: %zu tensors, mean %g\n", context.rank(), context.world_size(),
                tensors.size(), mean);
    context.finalize();
  } catch (const ina::Exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

// A worker that sums everything one can ask for: each data type by each operation, in place and
// not, from no element to many, one after another and many at once.
//   grid_worker URL JOB RANK WORLD
// WORLD is a power of two, so that averages are exact. Prints "ok" and how many operations it were,
// or what was wrong, and then ends with 1.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "ina/ina.h"

namespace {

constexpr std::array kTypes = {INA_INT8,    INA_INT32,    INA_INT64,  INA_FLOAT32,
                               INA_FLOAT64, INA_BFLOAT16, INA_FLOAT16};
constexpr std::array kFloats = {INA_FLOAT32, INA_FLOAT64, INA_BFLOAT16, INA_FLOAT16};
constexpr std::array kOperations = {INA_SUM, INA_MIN, INA_MAX, INA_AVG};
constexpr std::array<size_t, 8> kCounts = {0, 1, 2, 255, 256, 257, 1000, 20'011};

/// Small, so that every type holds every sum and average exactly.
double value_of(int rank, size_t element, int number) {
  const auto mixed = element * 7 + static_cast<size_t>(rank) * 13 + static_cast<size_t>(number) * 5;
  return static_cast<double>(mixed % 11) - 5;
}

double expected_of(ina_op op, int world, size_t element, int number) {
  double result = value_of(0, element, number);
  for (int rank = 1; rank < world; ++rank) {
    const double value = value_of(rank, element, number);
    if (op == INA_MIN)
      result = std::min(result, value);
    else if (op == INA_MAX)
      result = std::max(result, value);
    else
      result += value;
  }
  return op == INA_AVG ? result / world : result;
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Bits of a float16; only of numbers that it holds exactly and that are not subnormal.
uint16_t float16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (value == 0) return static_cast<uint16_t>(bits >> 16);
  const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
  return static_cast<uint16_t>((bits >> 31) << 15 | exponent << 10 | (bits >> 13 & 0x3ff));
}

void store(std::byte* at, ina_dtype dtype, double value) {
  switch (dtype) {
    case INA_INT8:
      return put(at, static_cast<int8_t>(value));
    case INA_INT32:
      return put(at, static_cast<int32_t>(value));
    case INA_INT64:
      return put(at, static_cast<int64_t>(value));
    case INA_FLOAT32:
      return put(at, static_cast<float>(value));
    case INA_FLOAT64:
      return put(at, value);
    case INA_BFLOAT16:
      return put(at,
                 static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    case INA_FLOAT16:
      return put(at, float16(value));
    case INA_DTYPE_MAX_ENUM:
      break;
  }
}

void check(int status, ina_context* context) {
  if (status != INA_OK)
    throw std::runtime_error(std::string(ina_status_name(status)) + " " + ina_last_error(context));
}

struct Tensor {
  ina_dtype dtype;
  size_t count;
  std::vector<std::byte> bytes;

  template <class Value>
  Tensor(ina_dtype type, size_t elements, Value&& value)
      : dtype(type), count(elements), bytes(elements * ina_dtype_size(type)) {
    for (size_t i = 0; i < count; ++i)
      store(bytes.data() + i * ina_dtype_size(dtype), dtype, value(i));
  }
  bool operator==(const Tensor&) const = default;
};

class Worker {
 public:
  Worker(ina_context* context, int rank, int world)
      : context_(context), rank_(rank), world_(world) {}

  void reduce_each_type_by_each_operation() {
    for (const ina_dtype dtype : kTypes)
      for (const ina_op op : kOperations) {
        const bool has_average = std::ranges::find(kFloats, dtype) != kFloats.end();
        if (op == INA_AVG && !has_average) continue;
        for (const size_t count : kCounts) reduce(dtype, op, count);
      }
  }

  void reduce_many_at_once() {
    constexpr size_t kAtOnce = 40;
    std::vector<Tensor> tensors;
    std::vector<ina_request*> requests(kAtOnce);
    for (size_t i = 0; i < kAtOnce; ++i) tensors.push_back(own(INA_FLOAT32, i * 61, number_));
    for (size_t i = 0; i < kAtOnce; ++i)
      check(ina_allreduce_async(context_, tensors[i].bytes.data(), tensors[i].bytes.data(),
                                tensors[i].count, INA_FLOAT32, INA_SUM, &requests[i]),
            context_);
    for (size_t i = kAtOnce; i-- > 0;) check(ina_wait(requests[i], 0), context_);
    for (const Tensor& tensor : tensors) compare(tensor, INA_SUM, number_);
    ++number_;
  }

  void synchronise() {
    check(ina_barrier(context_, 0), context_);
    ++done_;
  }

  int done() const { return done_; }

 private:
  Tensor own(ina_dtype dtype, size_t count, int number) const {
    return Tensor(dtype, count, [&](size_t i) { return value_of(rank_, i, number); });
  }

  void allreduce(const Tensor& send, Tensor& recv, ina_op op) {
    check(ina_allreduce(context_, send.bytes.data(), recv.bytes.data(), send.count, send.dtype, op,
                        0),
          context_);
  }

  void reduce(ina_dtype dtype, ina_op op, size_t count) {
    const Tensor send = own(dtype, count, number_);
    Tensor apart(dtype, count, [](size_t) { return 9; });
    Tensor in_place = send;
    allreduce(send, apart, op);
    allreduce(in_place, in_place, op);
    compare(apart, op, number_);
    compare(in_place, op, number_);
    if (!(send == own(dtype, count, number_))) throw std::runtime_error("the send buffer changed");
    ++number_;
  }

  void compare(const Tensor& got, ina_op op, int number) {
    ++done_;
    const Tensor expected(got.dtype, got.count,
                          [&](size_t i) { return expected_of(op, world_, i, number); });
    if (got == expected) return;
    throw std::runtime_error("rank " + std::to_string(rank_) + ": wrong result of dtype " +
                             std::to_string(got.dtype) + " op " + std::to_string(op) + " count " +
                             std::to_string(got.count));
  }

  ina_context* const context_;
  const int rank_;
  const int world_;
  int number_ = 0;  ///< differs from operation to operation, so that no old result passes
  int done_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  ina_config config;
  ina_config_init(&config);
  config.url = argv[1];
  config.job = argv[2];
  config.rank = std::atoi(argv[3]);
  config.world_size = std::atoi(argv[4]);
  ina_context* context = nullptr;
  try {
    check(ina_init(&config, &context), nullptr);
    Worker worker(context, config.rank, config.world_size);
    worker.reduce_each_type_by_each_operation();
    worker.reduce_many_at_once();
    worker.synchronise();
    check(ina_finalize(context, 0), nullptr);
    std::printf("ok %d\n", worker.done());
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

// libina for C++20: ownership, spans and exceptions over the C ABI. ina.h has the semantics.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ina/ina.h"

namespace ina {

/// Every failing call of this header throws this exception; what() is the library's full text.
class Exception : public std::runtime_error {
 public:
  Exception(int status, const std::string& text)
      : std::runtime_error(std::string(ina_status_name(status)) + ": " + text), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

namespace detail {
inline void check(int status, const ina_context* context) {
  if (status < 0) throw Exception(status, ina_last_error(context));
}
inline int64_t count_us(std::chrono::microseconds timeout) {
  return timeout.count();
}
}  // namespace detail

/// 16-bit floats as bit patterns: C++20 has no types for them.
enum class bfloat16 : uint16_t {};
enum class float16 : uint16_t {};

/// The ina_dtype of an element type.
template <class T>
constexpr ina_dtype dtype_of() {
  if constexpr (std::is_same_v<T, int8_t>)
    return INA_INT8;
  else if constexpr (std::is_same_v<T, int32_t>)
    return INA_INT32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return INA_INT64;
  else if constexpr (std::is_same_v<T, float>)
    return INA_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return INA_FLOAT64;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return INA_BFLOAT16;
  else if constexpr (std::is_same_v<T, float16>)
    return INA_FLOAT16;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return INA_UINT8;
  else if constexpr (std::is_same_v<T, bool>)
    return INA_BOOL;
  else
    static_assert(sizeof(T) == 0, "no ina_dtype for this element type");
}

/// Counts or displacements by rank, in elements. Displacements may be left out ({}): one block
/// after the other.
using Numbers = std::span<const size_t>;

/// An operation in flight. Its buffers must outlive it; wait() or the destructor ends it.
class Request {
 public:
  Request(ina_request* request, ina_context* context) : request_(request), context_(context) {}
  Request(Request&& other) noexcept
      : request_(std::exchange(other.request_, nullptr)), context_(other.context_) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      finish();
      request_ = std::exchange(other.request_, nullptr);
      context_ = other.context_;
    }
    return *this;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  /// Waits, because the library still owns the buffers. The next call reports errors.
  ~Request() { finish(); }

  /// timeout 0: the context's default. A time-out throws and leaves the operation running.
  void wait(std::chrono::microseconds timeout = {}) {
    if (!request_) return;
    const int status = ina_wait(request_, detail::count_us(timeout));
    if (status != INA_ERR_TIMEOUT) request_ = nullptr;
    detail::check(status, context_);
  }
  /// True once complete.
  bool test() {
    if (!request_) return true;
    const int status = ina_test(request_);
    if (status == INA_IN_PROGRESS) return false;
    request_ = nullptr;
    detail::check(status, context_);
    return true;
  }
  /// Calls `callback(user, status)` on the library's thread once it is complete. The request is
  /// empty afterwards, and waits for nothing.
  void set_callback(ina_callback callback, void* user) {
    if (!request_) return;
    detail::check(ina_request_set_callback(request_, callback, user), context_);
    request_ = nullptr;
  }

 private:
  void finish() noexcept {
    if (request_) ina_request_free(std::exchange(request_, nullptr));
  }
  ina_request* request_;
  ina_context* context_;
};

/// Memory of a context (ina_alloc, ina_alloc_result). Destroy it before its context.
template <class T>
class Buffer {
 public:
  Buffer(ina_context* context, T* data, size_t count)
      : context_(context), data_(data), count_(count) {}
  Buffer(Buffer&& other) noexcept
      : context_(other.context_),
        data_(std::exchange(other.data_, nullptr)),
        count_(other.count_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_) ina_free(context_, const_cast<std::remove_const_t<T>*>(data_));
  }
  T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }

 private:
  ina_context* context_;
  T* data_;
  size_t count_;
};

/// How an array that is spread over the ranks gets another layout (ina_plan_create).
class RedistributionPlan {
 public:
  using Shape = std::span<const size_t>;

  /// `wanted.struct_size` is filled in.
  explicit RedistributionPlan(ina_redistribution wanted) {
    wanted.struct_size = sizeof wanted;
    ina_plan* made = nullptr;
    detail::check(ina_plan_create(&wanted, &made), nullptr);
    plan_.reset(made);
  }
  /// A plan for elements of type T. `costs`: such as Context::measure_costs() gives.
  template <class T>
  static RedistributionPlan of(const std::string& mesh, Shape shape, const std::string& from,
                               const std::string& to, uint64_t limit_bytes = 0,
                               const ina_costs* costs = nullptr) {
    ina_redistribution wanted{};
    wanted.mesh = mesh.c_str();
    wanted.shape = shape.data();
    wanted.dimensions = shape.size();
    wanted.from = from.c_str();
    wanted.to = to.c_str();
    wanted.dtype = dtype_of<T>();
    wanted.limit_bytes = limit_bytes;
    wanted.costs = costs;
    return RedistributionPlan(wanted);
  }
  static RedistributionPlan parse(const std::string& json) {
    ina_plan* made = nullptr;
    detail::check(ina_plan_parse(json.c_str(), &made), nullptr);
    return RedistributionPlan(made);
  }

  ina_plan_facts facts() const {
    ina_plan_facts facts{};
    facts.struct_size = sizeof facts;
    detail::check(ina_plan_get_facts(plan_.get(), &facts), nullptr);
    return facts;
  }
  /// For a person, and to be parsed.
  std::string text() const { return shown(ina_plan_text(plan_.get())); }
  std::string json() const { return shown(ina_plan_json(plan_.get())); }

  ina_plan* get() const { return plan_.get(); }

 private:
  explicit RedistributionPlan(ina_plan* plan) : plan_(plan) {}
  static std::string shown(const char* text) {
    if (!text) throw Exception(INA_ERR_NO_MEMORY, ina_last_error(nullptr));
    return text;
  }
  struct Deleter {
    void operator()(ina_plan* plan) const { ina_plan_free(plan); }
  };
  std::unique_ptr<ina_plan, Deleter> plan_;
};

/// One worker's membership in a job. The destructor leaves the job. With config.numeric
/// INA_NUMERIC_REPRODUCIBLE, sums of floats have the same bits in every run (see ina_numeric).
class Context {
 public:
  /// `config`: initialised by ina_config_init. Without it all settings come from the environment.
  explicit Context(const ina_config& config) { init(&config); }
  Context() { init(nullptr); }

  int rank() const { return ina_rank(context_.get()); }
  int world_size() const { return ina_world_size(context_.get()); }

  /// Collective: the group of the ranks that give the same colour, ranked by `key` and then by
  /// rank (ina_split). Nothing: `colour` is negative.
  [[nodiscard]] std::optional<Context> split(int32_t colour, int32_t key = 0) {
    ina_context* group = nullptr;
    detail::check(ina_split(context_.get(), colour, key, &group), context_.get());
    return group ? std::optional<Context>(Context(group)) : std::nullopt;
  }
  /// The group of `ranks`, in this order. Its members call it, with the same ranks and `tag`, and
  /// no other rank takes part (ina_create_group).
  [[nodiscard]] Context create_group(std::span<const int> ranks, uint64_t tag = 0) {
    ina_context* group = nullptr;
    detail::check(ina_create_group(context_.get(), ranks.data(), ranks.size(), tag, &group),
                  context_.get());
    return Context(group);
  }

  template <class T>
  void allreduce(std::span<const T> send, std::span<T> recv, ina_op op = INA_SUM,
                 std::chrono::microseconds timeout = {}) {
    check_sizes(send.size(), recv.size());
    detail::check(ina_allreduce(context_.get(), send.data(), recv.data(), send.size(),
                                dtype_of<T>(), op, detail::count_us(timeout)),
                  context_.get());
  }
  /// In place.
  template <class T>
  requires(!std::is_const_v<T>) void allreduce(std::span<T> data, ina_op op = INA_SUM,
                                               std::chrono::microseconds timeout = {}) {
    allreduce<T>(std::span<const T>(data), data, op, timeout);
  }
  template <class T>
  [[nodiscard]] Request allreduce_async(std::span<const T> send, std::span<T> recv,
                                        ina_op op = INA_SUM) {
    check_sizes(send.size(), recv.size());
    ina_request* request = nullptr;
    detail::check(ina_allreduce_async(context_.get(), send.data(), recv.data(), send.size(),
                                      dtype_of<T>(), op, &request),
                  context_.get());
    return Request(request, context_.get());
  }
  /// In place.
  template <class T>
  requires(!std::is_const_v<T>) [[nodiscard]] Request
      allreduce_async(std::span<T> data, ina_op op = INA_SUM) {
    return allreduce_async<T>(std::span<const T>(data), data, op);
  }

  // The other collectives; ina.h has what each does and how it works in place. `send` and `recv`
  // have the sizes that the call follows from. A rank that has no use for one gives {}. Each has a
  // form that waits and, with _async, one that returns a Request.

  /// At `root`, `recv` has as many elements as `send`.
  template <class T>
  void reduce(std::span<const T> send, std::span<T> recv, int root, ina_op op = INA_SUM,
              std::chrono::microseconds timeout = {}) {
    if (rank() == root) check_size("reduce", "recv", recv.size(), send.size());
    wait(ina_reduce, timeout, send.data(), recv.data(), send.size(), dtype_of<T>(), op, root);
  }
  template <class T>
  [[nodiscard]] Request reduce_async(std::span<const T> send, std::span<T> recv, int root,
                                     ina_op op = INA_SUM) {
    if (rank() == root) check_size("reduce", "recv", recv.size(), send.size());
    return begin(ina_reduce_async, send.data(), recv.data(), send.size(), dtype_of<T>(), op, root);
  }

  /// In place at the root.
  template <class T>
  void broadcast(std::span<T> data, int root, std::chrono::microseconds timeout = {}) {
    wait(ina_broadcast, timeout, data.data(), data.data(), data.size(), dtype_of<T>(), root);
  }
  template <class T>
  [[nodiscard]] Request broadcast_async(std::span<T> data, int root) {
    return begin(ina_broadcast_async, data.data(), data.data(), data.size(), dtype_of<T>(), root);
  }

  /// `send` has world_size() times as many elements as `recv`.
  template <class T>
  void reduce_scatter(std::span<const T> send, std::span<T> recv, ina_op op = INA_SUM,
                      std::chrono::microseconds timeout = {}) {
    check_size("reduce_scatter", "send", send.size(), recv.size() * ranks());
    wait(ina_reduce_scatter_block, timeout, send.data(), recv.data(), recv.size(), dtype_of<T>(),
         op);
  }
  template <class T>
  [[nodiscard]] Request reduce_scatter_async(std::span<const T> send, std::span<T> recv,
                                             ina_op op = INA_SUM) {
    check_size("reduce_scatter", "send", send.size(), recv.size() * ranks());
    return begin(ina_reduce_scatter_block_async, send.data(), recv.data(), recv.size(),
                 dtype_of<T>(), op);
  }
  /// Blocks of uneven size.
  template <class T>
  void reduce_scatter(std::span<const T> send, std::span<T> recv, Numbers counts,
                      ina_op op = INA_SUM, std::chrono::microseconds timeout = {}) {
    check_shares("reduce_scatter", "send", send.size(), counts, {});
    check_own("reduce_scatter", "recv", recv.size(), counts);
    wait(ina_reduce_scatter, timeout, send.data(), recv.data(), counts.data(), dtype_of<T>(), op);
  }
  template <class T>
  [[nodiscard]] Request reduce_scatter_async(std::span<const T> send, std::span<T> recv,
                                             Numbers counts, ina_op op = INA_SUM) {
    check_shares("reduce_scatter", "send", send.size(), counts, {});
    check_own("reduce_scatter", "recv", recv.size(), counts);
    return begin(ina_reduce_scatter_async, send.data(), recv.data(), counts.data(), dtype_of<T>(),
                 op);
  }

  /// `recv` has world_size() times as many elements as `send`.
  template <class T>
  void all_gather(std::span<const T> send, std::span<T> recv,
                  std::chrono::microseconds timeout = {}) {
    check_size("all_gather", "recv", recv.size(), send.size() * ranks());
    wait(ina_all_gather, timeout, send.data(), recv.data(), send.size(), dtype_of<T>());
  }
  template <class T>
  [[nodiscard]] Request all_gather_async(std::span<const T> send, std::span<T> recv) {
    check_size("all_gather", "recv", recv.size(), send.size() * ranks());
    return begin(ina_all_gather_async, send.data(), recv.data(), send.size(), dtype_of<T>());
  }
  template <class T>
  void all_gather(std::span<const T> send, std::span<T> recv, Numbers counts,
                  Numbers displacements = {}, std::chrono::microseconds timeout = {}) {
    check_own("all_gather", "send", send.size(), counts);
    check_shares("all_gather", "recv", recv.size(), counts, displacements);
    wait(ina_all_gatherv, timeout, send.data(), recv.data(), counts.data(), displacements.data(),
         dtype_of<T>());
  }
  template <class T>
  [[nodiscard]] Request all_gather_async(std::span<const T> send, std::span<T> recv, Numbers counts,
                                         Numbers displacements = {}) {
    check_own("all_gather", "send", send.size(), counts);
    check_shares("all_gather", "recv", recv.size(), counts, displacements);
    return begin(ina_all_gatherv_async, send.data(), recv.data(), counts.data(),
                 displacements.data(), dtype_of<T>());
  }

  /// At `root`, `recv` has world_size() times as many elements as `send`.
  template <class T>
  void gather(std::span<const T> send, std::span<T> recv, int root,
              std::chrono::microseconds timeout = {}) {
    if (rank() == root) check_size("gather", "recv", recv.size(), send.size() * ranks());
    wait(ina_gather, timeout, send.data(), recv.data(), send.size(), dtype_of<T>(), root);
  }
  template <class T>
  [[nodiscard]] Request gather_async(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root) check_size("gather", "recv", recv.size(), send.size() * ranks());
    return begin(ina_gather_async, send.data(), recv.data(), send.size(), dtype_of<T>(), root);
  }
  template <class T>
  void gather(std::span<const T> send, std::span<T> recv, int root, Numbers counts,
              Numbers displacements = {}, std::chrono::microseconds timeout = {}) {
    check_own("gather", "send", send.size(), counts);
    if (rank() == root) check_shares("gather", "recv", recv.size(), counts, displacements);
    wait(ina_gatherv, timeout, send.data(), recv.data(), counts.data(), displacements.data(),
         dtype_of<T>(), root);
  }
  template <class T>
  [[nodiscard]] Request gather_async(std::span<const T> send, std::span<T> recv, int root,
                                     Numbers counts, Numbers displacements = {}) {
    check_own("gather", "send", send.size(), counts);
    if (rank() == root) check_shares("gather", "recv", recv.size(), counts, displacements);
    return begin(ina_gatherv_async, send.data(), recv.data(), counts.data(), displacements.data(),
                 dtype_of<T>(), root);
  }

  /// At `root`, `send` has world_size() times as many elements as `recv`.
  template <class T>
  void scatter(std::span<const T> send, std::span<T> recv, int root,
               std::chrono::microseconds timeout = {}) {
    if (rank() == root) check_size("scatter", "send", send.size(), recv.size() * ranks());
    wait(ina_scatter, timeout, send.data(), recv.data(), recv.size(), dtype_of<T>(), root);
  }
  template <class T>
  [[nodiscard]] Request scatter_async(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root) check_size("scatter", "send", send.size(), recv.size() * ranks());
    return begin(ina_scatter_async, send.data(), recv.data(), recv.size(), dtype_of<T>(), root);
  }
  template <class T>
  void scatter(std::span<const T> send, std::span<T> recv, int root, Numbers counts,
               Numbers displacements = {}, std::chrono::microseconds timeout = {}) {
    if (rank() == root) check_shares("scatter", "send", send.size(), counts, displacements);
    check_own("scatter", "recv", recv.size(), counts);
    wait(ina_scatterv, timeout, send.data(), recv.data(), counts.data(), displacements.data(),
         dtype_of<T>(), root);
  }
  template <class T>
  [[nodiscard]] Request scatter_async(std::span<const T> send, std::span<T> recv, int root,
                                      Numbers counts, Numbers displacements = {}) {
    if (rank() == root) check_shares("scatter", "send", send.size(), counts, displacements);
    check_own("scatter", "recv", recv.size(), counts);
    return begin(ina_scatterv_async, send.data(), recv.data(), counts.data(), displacements.data(),
                 dtype_of<T>(), root);
  }

  /// `send` and `recv` have world_size() blocks of the same size.
  template <class T>
  void all_to_all(std::span<const T> send, std::span<T> recv,
                  std::chrono::microseconds timeout = {}) {
    wait(ina_all_to_all, timeout, send.data(), recv.data(), block_of(send.size(), recv.size()),
         dtype_of<T>());
  }
  template <class T>
  [[nodiscard]] Request all_to_all_async(std::span<const T> send, std::span<T> recv) {
    return begin(ina_all_to_all_async, send.data(), recv.data(), block_of(send.size(), recv.size()),
                 dtype_of<T>());
  }
  /// Each rank gives its own counts. Blocks lie one after the other where there are no
  /// displacements.
  template <class T>
  void all_to_all(std::span<const T> send, Numbers send_counts, std::span<T> recv,
                  Numbers recv_counts, Numbers send_displacements = {},
                  Numbers recv_displacements = {}, std::chrono::microseconds timeout = {}) {
    check_shares("all_to_all", "send", send.size(), send_counts, send_displacements);
    check_shares("all_to_all", "recv", recv.size(), recv_counts, recv_displacements);
    wait(ina_all_to_allv, timeout, send.data(), recv.data(), send_counts.data(),
         send_displacements.data(), recv_counts.data(), recv_displacements.data(), dtype_of<T>());
  }
  template <class T>
  [[nodiscard]] Request all_to_all_async(std::span<const T> send, Numbers send_counts,
                                         std::span<T> recv, Numbers recv_counts,
                                         Numbers send_displacements = {},
                                         Numbers recv_displacements = {}) {
    check_shares("all_to_all", "send", send.size(), send_counts, send_displacements);
    check_shares("all_to_all", "recv", recv.size(), recv_counts, recv_displacements);
    return begin(ina_all_to_allv_async, send.data(), recv.data(), send_counts.data(),
                 send_displacements.data(), recv_counts.data(), recv_displacements.data(),
                 dtype_of<T>());
  }

  /// Both buffers have the same size on all ranks, used or not. destinations[r]: of rank r, or
  /// INA_NOBODY.
  template <class T>
  void permute(std::span<const T> send, std::span<T> recv, std::span<const int> destinations,
               std::chrono::microseconds timeout = {}) {
    check_size("permute", "recv", recv.size(), send.size());
    check_size("permute", "destinations", destinations.size(), ranks());
    wait(ina_permute, timeout, send.data(), recv.data(), send.size(), dtype_of<T>(),
         destinations.data());
  }
  template <class T>
  [[nodiscard]] Request permute_async(std::span<const T> send, std::span<T> recv,
                                      std::span<const int> destinations) {
    check_size("permute", "recv", recv.size(), send.size());
    check_size("permute", "destinations", destinations.size(), ranks());
    return begin(ina_permute_async, send.data(), recv.data(), send.size(), dtype_of<T>(),
                 destinations.data());
  }

  /// Either partner may be INA_NOBODY. All ranks of the job call it.
  template <class T>
  void send_receive(std::span<const T> send, int destination, std::span<T> recv, int source,
                    std::chrono::microseconds timeout = {}) {
    wait(ina_send_receive, timeout, send.data(), recv.data(), send.size(), destination, recv.size(),
         source, dtype_of<T>());
  }
  template <class T>
  [[nodiscard]] Request send_receive_async(std::span<const T> send, int destination,
                                           std::span<T> recv, int source) {
    return begin(ina_send_receive_async, send.data(), recv.data(), send.size(), destination,
                 recv.size(), source, dtype_of<T>());
  }

  /// An eventfd for event loops (ina_completion_fd); the context's.
  int completion_fd() {
    int fd = -1;
    detail::check(ina_completion_fd(context_.get(), &fd), context_.get());
    return fd;
  }

  /// Memory that the switch reads without a copy in between.
  template <class T>
  [[nodiscard]] Buffer<T> alloc(size_t count) {
    void* memory = nullptr;
    detail::check(ina_alloc(context_.get(), count * sizeof(T), &memory), context_.get());
    return {context_.get(), static_cast<T*>(memory), count};
  }
  /// Read-only memory that the switch writes for all ranks. All ranks must ask for it. Give its
  /// parts as `recv` to allreduce_into().
  template <class T>
  [[nodiscard]] Buffer<const T> alloc_result(size_t count) {
    void* memory = nullptr;
    detail::check(ina_alloc_result(context_.get(), count * sizeof(T), &memory), context_.get());
    return {context_.get(), static_cast<const T*>(memory), count};
  }
  /// An allreduce(); the switch writes its result to `recv`, a part of a result buffer.
  template <class T>
  void allreduce_into(std::span<const T> recv, std::span<const T> send, ina_op op = INA_SUM,
                      std::chrono::microseconds timeout = {}) {
    allreduce<T>(send, {const_cast<T*>(recv.data()), recv.size()}, op, timeout);
  }

  /// `buffer` has facts().buffer_bytes bytes; the tile is at its start, before and after.
  void redistribute(const RedistributionPlan& plan, std::span<std::byte> buffer,
                    std::chrono::microseconds timeout = {}) {
    wait(ina_redistribute, timeout, plan.get(), buffer.data(), buffer.size());
  }
  [[nodiscard]] Request redistribute_async(const RedistributionPlan& plan,
                                           std::span<std::byte> buffer) {
    return begin(ina_redistribute_async, plan.get(), buffer.data(), buffer.size());
  }
  /// Measured costs of redistributions: the same on all ranks, which all call it.
  [[nodiscard]] ina_costs measure_costs() {
    ina_costs costs{};
    costs.struct_size = sizeof costs;
    detail::check(ina_measure_costs(context_.get(), &costs), context_.get());
    return costs;
  }

  void barrier(std::chrono::microseconds timeout = {}) { wait(ina_barrier, timeout); }
  [[nodiscard]] Request barrier_async() { return begin(ina_barrier_async); }
  /// Leaves the job and reports errors, which the destructor cannot do.
  void finalize(std::chrono::microseconds timeout = {}) {
    const int status = ina_finalize(context_.release(), detail::count_us(timeout));
    detail::check(status, nullptr);
  }
  /// Hints for the operations started afterwards (ina_set_hints). The call fills in struct_size.
  void set_hints(ina_hints hints) {
    hints.struct_size = sizeof hints;
    detail::check(ina_set_hints(context_.get(), &hints), context_.get());
  }
  void reset_hints() { detail::check(ina_set_hints(context_.get(), nullptr), context_.get()); }
  ina_stats stats() const {
    ina_stats stats{};
    stats.struct_size = sizeof stats;
    detail::check(ina_get_stats(context_.get(), &stats), context_.get());
    return stats;
  }
  bool overflowed(bool clear = false) { return ina_overflowed(context_.get(), clear) > 0; }

  ina_context* get() const { return context_.get(); }

 private:
  explicit Context(ina_context* context) : context_(context) {}
  void init(const ina_config* config) {
    ina_context* raw = nullptr;
    detail::check(ina_init(config, &raw), nullptr);
    context_.reset(raw);
  }
  static void check_sizes(size_t send, size_t recv) {
    if (send != recv)
      throw Exception(INA_ERR_INVALID, "allreduce: send has " + std::to_string(send) +
                                           " elements, recv has " + std::to_string(recv));
  }
  /// Calls a C function that waits.
  template <class Function, class... Arguments>
  void wait(Function function, std::chrono::microseconds timeout, Arguments... arguments) {
    detail::check(function(context_.get(), arguments..., detail::count_us(timeout)),
                  context_.get());
  }
  /// Calls one that starts an operation.
  template <class Function, class... Arguments>
  Request begin(Function function, Arguments... arguments) {
    ina_request* request = nullptr;
    detail::check(function(context_.get(), arguments..., &request), context_.get());
    return Request(request, context_.get());
  }
  size_t ranks() const { return static_cast<size_t>(world_size()); }
  static void check_size(const char* function, const char* argument, size_t size, size_t wanted) {
    if (size != wanted)
      throw Exception(INA_ERR_INVALID, std::string(function) + ": " + argument + " has " +
                                           std::to_string(size) + " elements, not " +
                                           std::to_string(wanted));
  }
  void check_own(const char* function, const char* argument, size_t size, Numbers counts) const {
    check_size(function, "counts", counts.size(), ranks());
    check_size(function, argument, size, counts[static_cast<size_t>(rank())]);
  }
  /// Blocks of all ranks lie within a buffer of `size`.
  void check_shares(const char* function, const char* argument, size_t size, Numbers counts,
                    Numbers displacements) const {
    check_size(function, "counts", counts.size(), ranks());
    if (!displacements.empty())
      check_size(function, "displacements", displacements.size(), ranks());
    size_t packed = 0;
    for (size_t r = 0; r < counts.size(); packed += counts[r++]) {
      const size_t first = displacements.empty() ? packed : displacements[r];
      if (first > size || counts[r] > size - first)
        throw Exception(INA_ERR_INVALID, std::string(function) + ": the block of rank " +
                                             std::to_string(r) + " reaches beyond " + argument +
                                             ", which has " + std::to_string(size) + " elements");
    }
  }
  /// Elements of a rank's block in both.
  size_t block_of(size_t send, size_t recv) const {
    check_size("all_to_all", "recv", recv, send);
    check_size("all_to_all", "send", send, send / ranks() * ranks());
    return send / ranks();
  }
  struct Deleter {
    void operator()(ina_context* context) const { ina_finalize(context, 0); }
  };
  std::unique_ptr<ina_context, Deleter> context_;
};

/// How hierarchical collectives are planned (ina_hierarchical_options).
struct HierarchicalOptions {
  const char* scheduler = nullptr;  ///< "baseline", "themis", "search"; nullptr: "themis"
  uint32_t chunks = 0;              ///< 0: the library's default
};

/// Collectives of all ranks through the dimensions of a network (ina_hierarchy_create). The
/// destructor leaves its groups, which all ranks must do. Destroy it before its context.
class Hierarchy {
 public:
  using Options = HierarchicalOptions;

  /// `rails`: for each dimension a context of the same ranks; empty: `context` for all.
  static Hierarchy from_text(Context& context, const std::string& yaml,
                             std::span<Context* const> rails = {}) {
    return {context, yaml.c_str(), nullptr, rails};
  }
  static Hierarchy from_file(Context& context, const std::string& path,
                             std::span<Context* const> rails = {}) {
    return {context, nullptr, path.c_str(), rails};
  }

  template <class T>
  void allreduce(std::span<const T> send, std::span<T> recv, ina_op op = INA_SUM,
                 const Options& options = {}, std::chrono::microseconds timeout = {}) {
    check_size("allreduce", "recv", recv.size(), send.size());
    wait(ina_hierarchical_allreduce, options, timeout, send.data(), recv.data(), send.size(),
         dtype_of<T>(), op);
  }
  template <class T>
  [[nodiscard]] Request allreduce_async(std::span<const T> send, std::span<T> recv,
                                        ina_op op = INA_SUM, const Options& options = {}) {
    check_size("allreduce", "recv", recv.size(), send.size());
    return begin(ina_hierarchical_allreduce_async, options, send.data(), recv.data(), send.size(),
                 dtype_of<T>(), op);
  }
  /// `send` has a block of recv.size() elements for each rank.
  template <class T>
  void reduce_scatter(std::span<const T> send, std::span<T> recv, ina_op op = INA_SUM,
                      const Options& options = {}, std::chrono::microseconds timeout = {}) {
    check_size("reduce_scatter", "send", send.size(), recv.size() * ranks_);
    wait(ina_hierarchical_reduce_scatter, options, timeout, send.data(), recv.data(), recv.size(),
         dtype_of<T>(), op);
  }
  template <class T>
  [[nodiscard]] Request reduce_scatter_async(std::span<const T> send, std::span<T> recv,
                                             ina_op op = INA_SUM, const Options& options = {}) {
    check_size("reduce_scatter", "send", send.size(), recv.size() * ranks_);
    return begin(ina_hierarchical_reduce_scatter_async, options, send.data(), recv.data(),
                 recv.size(), dtype_of<T>(), op);
  }
  template <class T>
  void all_gather(std::span<const T> send, std::span<T> recv, const Options& options = {},
                  std::chrono::microseconds timeout = {}) {
    check_size("all_gather", "recv", recv.size(), send.size() * ranks_);
    wait(ina_hierarchical_all_gather, options, timeout, send.data(), recv.data(), send.size(),
         dtype_of<T>());
  }
  template <class T>
  [[nodiscard]] Request all_gather_async(std::span<const T> send, std::span<T> recv,
                                         const Options& options = {}) {
    check_size("all_gather", "recv", recv.size(), send.size() * ranks_);
    return begin(ina_hierarchical_all_gather_async, options, send.data(), recv.data(), send.size(),
                 dtype_of<T>());
  }
  /// `send` and `recv` have a block of the same size for each rank.
  template <class T>
  void all_to_all(std::span<const T> send, std::span<T> recv, const Options& options = {},
                  std::chrono::microseconds timeout = {}) {
    check_blocks(send.size(), recv.size());
    wait(ina_hierarchical_all_to_all, options, timeout, send.data(), recv.data(),
         send.size() / ranks_, dtype_of<T>());
  }
  template <class T>
  [[nodiscard]] Request all_to_all_async(std::span<const T> send, std::span<T> recv,
                                         const Options& options = {}) {
    check_blocks(send.size(), recv.size());
    return begin(ina_hierarchical_all_to_all_async, options, send.data(), recv.data(),
                 send.size() / ranks_, dtype_of<T>());
  }

  /// A topology with measured rates and latencies (ina_hierarchy_calibrate), as from_text() takes
  /// it.
  [[nodiscard]] std::string calibrate() {
    const char* yaml = nullptr;
    detail::check(ina_hierarchy_calibrate(hierarchy_.get(), &yaml), context_);
    return yaml;
  }

  /// One collective of a group. The spans are those of the function of the same name.
  class Call {
   public:
    template <class T>
    static Call allreduce(std::span<const T> send, std::span<T> recv, ina_op op = INA_SUM) {
      return make(INA_HIERARCHICAL_ALLREDUCE, send, recv, op);
    }
    template <class T>
    static Call reduce_scatter(std::span<const T> send, std::span<T> recv, ina_op op = INA_SUM) {
      return make(INA_HIERARCHICAL_REDUCE_SCATTER, send, recv, op);
    }
    template <class T>
    static Call all_gather(std::span<const T> send, std::span<T> recv) {
      return make(INA_HIERARCHICAL_ALL_GATHER, send, recv, INA_SUM);
    }
    template <class T>
    static Call all_to_all(std::span<const T> send, std::span<T> recv) {
      return make(INA_HIERARCHICAL_ALL_TO_ALL, send, recv, INA_SUM);
    }

   private:
    friend class Hierarchy;
    template <class T>
    static Call make(ina_hierarchical_collective collective, std::span<const T> send,
                     std::span<T> recv, ina_op op) {
      return {
          {collective, send.data(), recv.data(), 0, dtype_of<T>(), op}, send.size(), recv.size()};
    }
    Call(const ina_hierarchical_call& call, size_t send, size_t recv)
        : call_(call), send_size_(send), recv_size_(recv) {}

    ina_hierarchical_call call_;
    size_t send_size_, recv_size_;
  };

  /// Collectives that begin together, by one plan (ina_hierarchical_group).
  void group(std::span<const Call> calls, const Options& options = {},
             std::chrono::microseconds timeout = {}) {
    const std::vector<ina_hierarchical_call> all = c(calls);
    wait(ina_hierarchical_group, options, timeout, all.data(), all.size());
  }
  void group(std::initializer_list<Call> calls, const Options& options = {},
             std::chrono::microseconds timeout = {}) {
    group(std::span(calls.begin(), calls.size()), options, timeout);
  }
  [[nodiscard]] Request group_async(std::span<const Call> calls, const Options& options = {}) {
    const std::vector<ina_hierarchical_call> all = c(calls);
    return begin(ina_hierarchical_group_async, options, all.data(), all.size());
  }
  [[nodiscard]] Request group_async(std::initializer_list<Call> calls,
                                    const Options& options = {}) {
    return group_async(std::span(calls.begin(), calls.size()), options);
  }

  /// Leaves its groups and reports errors, which the destructor cannot do.
  void free(std::chrono::microseconds timeout = {}) {
    detail::check(ina_hierarchy_free(hierarchy_.release(), detail::count_us(timeout)), nullptr);
  }

  ina_hierarchy* get() const { return hierarchy_.get(); }

 private:
  Hierarchy(Context& context, const char* text, const char* path, std::span<Context* const> rails)
      : context_(context.get()), ranks_(static_cast<size_t>(context.world_size())) {
    std::vector<ina_context*> raw;
    for (const Context* rail : rails) raw.push_back(rail->get());
    ina_hierarchy_config config{};
    config.struct_size = sizeof config;
    config.topology = text;
    config.topology_file = path;
    config.rails = raw.empty() ? nullptr : raw.data();
    config.rail_count = raw.size();
    ina_hierarchy* made = nullptr;
    detail::check(ina_hierarchy_create(context_, &config, &made), context_);
    hierarchy_.reset(made);
  }
  /// With their counts.
  std::vector<ina_hierarchical_call> c(std::span<const Call> calls) const {
    std::vector<ina_hierarchical_call> all;
    for (const Call& given : calls) {
      ina_hierarchical_call& call = all.emplace_back(given.call_);
      const size_t send = given.send_size_, recv = given.recv_size_;
      switch (call.collective) {
        case INA_HIERARCHICAL_ALLREDUCE:
          check_size("group: allreduce", "recv", recv, send);
          call.count = send;
          break;
        case INA_HIERARCHICAL_REDUCE_SCATTER:
          check_size("group: reduce_scatter", "send", send, recv * ranks_);
          call.count = recv;
          break;
        case INA_HIERARCHICAL_ALL_GATHER:
          check_size("group: all_gather", "recv", recv, send * ranks_);
          call.count = send;
          break;
        default:
          check_blocks(send, recv);
          call.count = send / ranks_;
      }
    }
    return all;
  }
  static ina_hierarchical_options c(const Options& options) {
    return {sizeof(ina_hierarchical_options), options.scheduler, options.chunks};
  }
  template <class Function, class... Arguments>
  void wait(Function function, const Options& options, std::chrono::microseconds timeout,
            Arguments... arguments) {
    const ina_hierarchical_options given = c(options);
    detail::check(function(hierarchy_.get(), arguments..., &given, detail::count_us(timeout)),
                  context_);
  }
  template <class Function, class... Arguments>
  Request begin(Function function, const Options& options, Arguments... arguments) {
    const ina_hierarchical_options given = c(options);
    ina_request* request = nullptr;
    detail::check(function(hierarchy_.get(), arguments..., &given, &request), context_);
    return Request(request, context_);
  }
  static void check_size(const char* function, const char* argument, size_t size, size_t wanted) {
    if (size != wanted)
      throw Exception(INA_ERR_INVALID, std::string(function) + ": " + argument + " has " +
                                           std::to_string(size) + " elements, not " +
                                           std::to_string(wanted));
  }
  void check_blocks(size_t send, size_t recv) const {
    check_size("all_to_all", "recv", recv, send);
    check_size("all_to_all", "send", send, send / ranks_ * ranks_);
  }
  struct Deleter {
    void operator()(ina_hierarchy* hierarchy) const { ina_hierarchy_free(hierarchy, 0); }
  };
  ina_context* context_;
  size_t ranks_;
  std::unique_ptr<ina_hierarchy, Deleter> hierarchy_;
};

/// Fuses the small all-reduces that are started during its lifetime (ina_group_start). end()
/// reports errors, the destructor does not. Wait for the requests after either.
class Group {
 public:
  explicit Group(Context& context) : context_(context.get()) {
    detail::check(ina_group_start(context_), context_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (context_) ina_group_end(context_);
  }
  void end() {
    ina_context* context = std::exchange(context_, nullptr);
    if (context) detail::check(ina_group_end(context), context);
  }

 private:
  ina_context* context_;
};

}  // namespace ina

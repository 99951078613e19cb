// MPI's collectives. Compiled once with OpenMPI and once with MPICH. OpenMPI's algorithms ("tuned")
// can be chosen: each is a mode beside the library's own choice ("plain").
#include <mpi.h>

#include <array>
#include <map>
#include <stdexcept>

#include "bench/peers/backend.h"

namespace ina::peers {
namespace {

using perf::Collective;

void require(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw std::runtime_error(std::string(what) + ": " + text);
}

/// OpenMPI's name in its parameter; empty: it has no algorithms to choose from.
std::string tuned_name(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
      return "allreduce";
    case Collective::kReduce:
      return "reduce";
    case Collective::kReduceScatter:
      return "reduce_scatter_block";
    case Collective::kBroadcast:
      return "bcast";
    case Collective::kAllGather:
      return "allgather";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kAllToAll:
      return "alltoall";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kPermute:
    case Collective::kSendReceive:
      break;
  }
  return {};
}

/// A control variable of the library (MPI_T). Absent in libraries that do not know it.
class Variable {
 public:
  explicit Variable(const std::string& name) {
    known_ = MPI_T_cvar_get_index(name.c_str(), &index_) == MPI_SUCCESS &&
             MPI_T_cvar_handle_alloc(index_, nullptr, &handle_, &count_) == MPI_SUCCESS;
  }
  ~Variable() {
    if (known_) MPI_T_cvar_handle_free(&handle_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  bool known() const { return known_; }
  template <class T>
  void set(T value) {
    require(MPI_T_cvar_write(handle_, &value), "MPI_T_cvar_write");
  }
  /// Names and values that it may have.
  std::map<std::string, int> values() const {
    std::map<std::string, int> values;
    if (!known_) return values;
    std::array<char, 256> text{};
    int length = text.size(), text_length = 0, verbosity = 0, bind = 0, scope = 0, count = 0;
    MPI_Datatype type{};
    MPI_T_enum items{};
    if (MPI_T_cvar_get_info(index_, text.data(), &length, &verbosity, &type, &items, nullptr,
                            &text_length, &bind, &scope) != MPI_SUCCESS ||
        items == MPI_T_ENUM_NULL)
      return values;
    length = text.size();
    require(MPI_T_enum_get_info(items, &count, text.data(), &length), "MPI_T_enum_get_info");
    for (int i = 0; i < count; ++i) {
      int value = 0;
      length = text.size();
      require(MPI_T_enum_get_item(items, i, &value, text.data(), &length), "MPI_T_enum_get_item");
      values[text.data()] = value;
    }
    return values;
  }

 private:
  bool known_ = false;
  int index_ = 0;
  int count_ = 0;
  MPI_T_cvar_handle handle_{};
};

class MpiBackend : public Backend {
 public:
  MpiBackend() {
    int provided = 0;
    require(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), "MPI_T_init_thread");
    require(MPI_Init(nullptr, nullptr), "MPI_Init");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  ~MpiBackend() override {
    MPI_Finalize();
    MPI_T_finalize();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text);
    // MPICH goes on with its configure line.
    const size_t end = all.find('\n');
    std::string first = all.substr(0, end);
    for (char& letter : first)
      if (letter == '\t') letter = ' ';
    return first;
  }

  std::vector<std::string> modes(Collective collective) override {
    if (collective == Collective::kPermute) return {};  // it is a send and receive here
    std::vector<std::string> modes = {"plain"};
    if (tuned_name(collective).empty()) return modes;
    for (const auto& [name, value] : algorithm_of(collective).values())
      // Value 0 leaves the choice to the library, and algorithms for two ranks fail with more.
      if (value != 0 && (ranks_ == 2 || !name.starts_with("two_proc")))
        modes.push_back("tuned_" + name);
    return modes;
  }

  Buffers allocate(const std::string& mode, const Operation& operation) override {
    operation_ = operation;
    communicator_ = communicator_of(mode, operation.collective);
    buffers_.allocate(operation.shape.send, operation.shape.recv);
    return {buffers_.send(), buffers_.recv()};
  }
  void release() override { buffers_.release(); }

  void run() override { require(call(), "MPI"); }

  // MPI libraries make progress in their calls only.
  void progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }

 private:
  static Variable algorithm_of(Collective collective) {
    return Variable("coll_tuned_" + tuned_name(collective) + "_algorithm");
  }

  /// One that has the algorithm: communicators keep what was set when they were made. OpenMPI looks
  /// at it if it was started with coll_tuned_use_dynamic_rules.
  MPI_Comm communicator_of(const std::string& mode, Collective collective) {
    if (mode == "plain") return MPI_COMM_WORLD;
    const auto [place, is_new] =
        communicators_.try_emplace(tuned_name(collective) + mode, MPI_COMM_NULL);
    if (!is_new) return place->second;
    Variable algorithm = algorithm_of(collective);
    algorithm.set(algorithm.values().at(mode.substr(sizeof("tuned_") - 1)));
    require(MPI_Comm_dup(MPI_COMM_WORLD, &place->second), "MPI_Comm_dup");
    algorithm.set(0);
    return place->second;
  }

  int call() {
    const auto whole = static_cast<int>(operation_.whole);
    const int block = whole / ranks_;
    float* const send = buffers_.send();
    float* const recv = buffers_.recv();
    const MPI_Comm comm = communicator_;
    switch (operation_.collective) {
      case Collective::kAllreduce:
        return MPI_Allreduce(send, recv, whole, MPI_FLOAT, MPI_SUM, comm);
      case Collective::kReduce:
        return MPI_Reduce(send, recv, whole, MPI_FLOAT, MPI_SUM, 0, comm);
      case Collective::kReduceScatter:
        return MPI_Reduce_scatter_block(send, recv, block, MPI_FLOAT, MPI_SUM, comm);
      case Collective::kBroadcast:
        return MPI_Bcast(rank_ == 0 ? send : recv, whole, MPI_FLOAT, 0, comm);
      case Collective::kAllGather:
        return MPI_Allgather(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, comm);
      case Collective::kGather:
        return MPI_Gather(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, 0, comm);
      case Collective::kScatter:
        return MPI_Scatter(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, 0, comm);
      case Collective::kAllToAll:
        return MPI_Alltoall(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, comm);
      case Collective::kSendReceive:
        return MPI_Sendrecv(send, whole, MPI_FLOAT, (rank_ + 1) % ranks_, 0, recv, whole, MPI_FLOAT,
                            (rank_ + ranks_ - 1) % ranks_, 0, comm, MPI_STATUS_IGNORE);
      case Collective::kBarrier:
        return MPI_Barrier(comm);
      case Collective::kPermute:
        break;
    }
    throw std::runtime_error("MPI has no permute");
  }

  int rank_ = 0;
  int ranks_ = 0;
  Operation operation_;
  MPI_Comm communicator_ = MPI_COMM_WORLD;
  std::map<std::string, MPI_Comm> communicators_;  ///< by collective and mode
  PlainBuffers buffers_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Place&) {
  return std::make_unique<MpiBackend>();
}

}  // namespace ina::peers

// MPI_Allreduce. Compiled once with OpenMPI and once with MPICH.
#include <mpi.h>

#include <stdexcept>

#include "bench/peers/backend.h"

namespace ina::peers {
namespace {

void require(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw std::runtime_error(std::string(what) + ": " + text);
}

class MpiBackend : public Backend {
 public:
  MpiBackend() {
    require(MPI_Init(nullptr, nullptr), "MPI_Init");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  ~MpiBackend() override { MPI_Finalize(); }

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

  std::vector<std::string> modes() const override { return {"plain"}; }

  Buffers allocate(const std::string&, size_t count) override {
    buffers_.allocate(count);
    return {.send = buffers_.send(), .recv = buffers_.recv(), .count = count};
  }
  void release() override { buffers_.release(); }

  void allreduce() override {
    require(MPI_Allreduce(buffers_.send(), buffers_.recv(), static_cast<int>(buffers_.count()),
                          MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
            "MPI_Allreduce");
  }

  // MPI libraries make progress in their calls only.
  void progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }

 private:
  int rank_ = 0;
  int ranks_ = 0;
  PlainBuffers buffers_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Place&) {
  return std::make_unique<MpiBackend>();
}

}  // namespace ina::peers

// Ours: with plain buffers and, on the switch's shm port, with registered ones.
#include <ina/ina.h>

#include <stdexcept>

#include "bench/peers/backend.h"
#include "bench/perf/registered.h"

namespace ina::peers {
namespace {

void require(int status, const char* what, const ina_context* context) {
  if (status != INA_OK)
    throw std::runtime_error(std::string(what) + ": " + ina_status_name(status) + ": " +
                             ina_last_error(context));
}

class InaBackend : public Backend {
 public:
  explicit InaBackend(const Place& place) : shm_(place.url.starts_with("shm:")) {
    ina_config config;
    ina_config_init(&config);
    config.url = place.url.c_str();
    config.rank = place.rank;
    config.world_size = place.ranks;
    require(ina_init(&config, &context_), "ina_init", nullptr);
  }
  ~InaBackend() override {
    release();
    ina_finalize(context_, 0);
  }
  InaBackend(const InaBackend&) = delete;
  InaBackend& operator=(const InaBackend&) = delete;

  int rank() const override { return ina_rank(context_); }
  int ranks() const override { return ina_world_size(context_); }
  std::string version() const override { return std::string("INA ") + ina_version(); }

  std::vector<std::string> modes(perf::Collective collective) override {
    if (shm_ && collective != perf::Collective::kBarrier) return {"plain", "registered"};
    return {"plain"};
  }

  Buffers allocate(const std::string& mode, const Operation& operation) override {
    const perf::Shape& shape = operation.shape;
    plain_.allocate(shape.send, shape.recv);
    call_ = {.collective = operation.collective,
             .whole = operation.whole,
             .dtype = INA_FLOAT32,
             .op = INA_SUM};
    used_ = {plain_.send(), plain_.recv()};
    if (mode != "registered") return used_;
    registered_ = std::make_unique<perf::RegisteredBuffers>(
        context_, std::max<uint64_t>(operation.whole * sizeof(float), 1));
    used_.send = static_cast<float*>(registered_->send());
    // Results that all get go there, in blocks at its units. The others are copied to plain memory.
    const uint64_t block_bytes = operation.whole / static_cast<uint64_t>(ranks()) * sizeof(float);
    call_.direct = shape.to_all && (operation.collective != perf::Collective::kAllGather ||
                                    block_bytes % INA_RESULT_ALIGNMENT == 0);
    if (call_.direct) used_.recv = static_cast<const float*>(registered_->result());
    return used_;
  }

  void release() override {
    registered_.reset();
    plain_.release();
    used_ = {};
  }

  void run() override {
    // A result buffer of the job is read-only here; only the switch writes it.
    require(perf::call(context_, call_, used_.send, const_cast<float*>(used_.recv)), "libina",
            context_);
  }

 private:
  const bool shm_;
  ina_context* context_ = nullptr;
  PlainBuffers plain_;
  std::unique_ptr<perf::RegisteredBuffers> registered_;
  Buffers used_;
  perf::Call call_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Place& place) {
  return std::make_unique<InaBackend>(place);
}

}  // namespace ina::peers

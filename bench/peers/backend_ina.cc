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
    registered_.reset();
    ina_finalize(context_, 0);
  }
  InaBackend(const InaBackend&) = delete;
  InaBackend& operator=(const InaBackend&) = delete;

  int rank() const override { return ina_rank(context_); }
  int ranks() const override { return ina_world_size(context_); }
  std::string version() const override { return std::string("INA ") + ina_version(); }

  std::vector<std::string> modes() const override {
    if (shm_) return {"plain", "registered"};
    return {"plain"};
  }

  Buffers allocate(const std::string& mode, size_t count) override {
    if (mode == "registered") {
      registered_ = std::make_unique<perf::RegisteredBuffers>(context_, count * sizeof(float));
      used_ = {.send = static_cast<float*>(registered_->send()),
               .recv = static_cast<const float*>(registered_->result()),
               .count = count};
    } else {
      plain_.allocate(count);
      used_ = {.send = plain_.send(), .recv = plain_.recv(), .count = count};
    }
    return used_;
  }

  void release() override {
    registered_.reset();
    plain_.release();
    used_ = {};
  }

  void allreduce() override {
    // A result buffer of the job is read-only here; the switch is who writes it.
    require(ina_allreduce(context_, used_.send, const_cast<float*>(used_.recv), used_.count,
                          INA_FLOAT32, INA_SUM, 0),
            "ina_allreduce", context_);
  }

 private:
  const bool shm_;
  ina_context* context_ = nullptr;
  PlainBuffers plain_;
  std::unique_ptr<perf::RegisteredBuffers> registered_;
  Buffers used_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Place& place) {
  return std::make_unique<InaBackend>(place);
}

}  // namespace ina::peers

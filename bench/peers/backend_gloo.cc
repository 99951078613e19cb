// Gloo over TCP: its ring, and halving-doubling.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

#include "bench/peers/backend.h"

namespace ina::peers {
namespace {

constexpr auto kTimeout = std::chrono::seconds(120);

class GlooBackend : public Backend {
 public:
  explicit GlooBackend(const Place& place)
      : context_(std::make_shared<gloo::rendezvous::Context>(place.rank, place.ranks)) {
    gloo::rendezvous::FileStore store(place.rendezvous);
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(place.address.c_str()));
    context_->setTimeout(kTimeout);
    context_->connectFullMesh(store, device);
  }

  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }

  std::string version() const override {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) +
           "." + std::to_string(GLOO_VERSION_PATCH);
  }

  std::vector<std::string> modes() const override { return {"ring", "halving_doubling"}; }

  Buffers allocate(const std::string& mode, size_t count) override {
    buffers_.allocate(count);
    if (mode == "halving_doubling")
      halving_doubling_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
          context_, std::vector<float*>{buffers_.recv()}, static_cast<int>(count));
    else
      make_ring();
    return {.send = buffers_.send(), .recv = buffers_.recv(), .count = count};
  }

  void release() override {
    halving_doubling_.reset();
    ring_.reset();
    buffers_.release();
  }

  // Halving-doubling works in place; the copy that this costs its user is not held against it.
  void prepare() override {
    if (halving_doubling_)
      std::memcpy(buffers_.recv(), buffers_.send(), buffers_.count() * sizeof(float));
  }

  void allreduce() override {
    if (halving_doubling_)
      halving_doubling_->run();
    else
      gloo::allreduce(*ring_);
  }

 private:
  // Both kinds are made once and run often, as Gloo's own benchmark does.
  void make_ring() {
    ring_ = std::make_unique<gloo::AllreduceOptions>(context_);
    ring_->setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    ring_->setInput(buffers_.send(), buffers_.count());
    ring_->setOutput(buffers_.recv(), buffers_.count());
    ring_->setReduceFunction([](void* to, const void* a, const void* b, size_t elements) {
      gloo::sum<float>(to, a, b, elements);
    });
    ring_->setTimeout(kTimeout);
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  PlainBuffers buffers_;
  std::unique_ptr<gloo::AllreduceOptions> ring_;
  std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> halving_doubling_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Place& place) {
  return std::make_unique<GlooBackend>(place);
}

}  // namespace ina::peers

// Gloo over TCP: its ring and halving-doubling for all-reduces, and its one way for the others.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "bench/peers/backend.h"

namespace ina::peers {
namespace {

using perf::Collective;

constexpr auto kTimeout = std::chrono::seconds(120);

void add(void* to, const void* a, const void* b, size_t elements) {
  gloo::sum<float>(to, a, b, elements);
}

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

  std::vector<std::string> modes(Collective collective) override {
    if (collective == Collective::kAllreduce) return {"ring", "halving_doubling"};
    if (collective == Collective::kPermute) return {};  // it is a send and receive here
    return {"plain"};
  }

  Buffers allocate(const std::string& mode, const Operation& operation) override {
    operation_ = operation;
    // Halving-doubling works in place, on the whole vector.
    const bool in_place =
        mode == "halving_doubling" || operation.collective == Collective::kReduceScatter;
    copied_ = in_place ? operation.whole : 0;
    buffers_.allocate(operation.shape.send, in_place ? operation.whole : operation.shape.recv);
    run_ = mode == "halving_doubling" ? halving_doubling() : make_run();
    return {buffers_.send(), buffers_.recv()};
  }

  void release() override {
    run_ = {};
    buffers_.release();
  }

  // The copy that an algorithm in place costs its user is not held against it.
  void prepare() override {
    if (copied_ != 0) std::memcpy(buffers_.recv(), buffers_.send(), copied_ * sizeof(float));
  }

  void run() override { run_(); }

 private:
  using Run = std::function<void()>;

  uint64_t block() const { return operation_.whole / static_cast<uint64_t>(ranks()); }

  /// All kinds are made once and run often, as Gloo's own benchmark does.
  template <class Options>
  std::shared_ptr<Options> options() {
    auto options = std::make_shared<Options>(context_);
    options->setTimeout(kTimeout);
    return options;
  }
  template <class Options>
  std::shared_ptr<Options> with_buffers() {
    auto made = options<Options>();
    made->setInput(buffers_.send(), operation_.shape.send);
    made->setOutput(buffers_.recv(), operation_.shape.recv);
    return made;
  }

  Run halving_doubling() {
    auto algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
        context_, std::vector<float*>{buffers_.recv()}, static_cast<int>(operation_.whole));
    return [algorithm] { algorithm->run(); };
  }

  Run make_run() {
    switch (operation_.collective) {
      case Collective::kAllreduce:
        return ring();
      case Collective::kReduce:
        return reduce();
      case Collective::kReduceScatter:
        return reduce_scatter();
      case Collective::kBroadcast:
        return broadcast();
      case Collective::kAllGather: {
        auto made = with_buffers<gloo::AllgatherOptions>();
        return [made] { gloo::allgather(*made); };
      }
      case Collective::kGather:
        return gather();
      case Collective::kScatter:
        return scatter();
      case Collective::kAllToAll: {
        auto made = with_buffers<gloo::AlltoallOptions>();
        return [made] { gloo::alltoall(*made); };
      }
      case Collective::kSendReceive:
        return send_receive();
      case Collective::kBarrier: {
        auto made = options<gloo::BarrierOptions>();
        return [made] { gloo::barrier(*made); };
      }
      case Collective::kPermute:
        break;
    }
    throw std::runtime_error("Gloo has no permute");
  }

  Run ring() {
    auto made = with_buffers<gloo::AllreduceOptions>();
    made->setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    made->setReduceFunction(add);
    return [made] { gloo::allreduce(*made); };
  }

  Run reduce() {
    // Ranks other than the root need room for partial sums.
    buffers_.allocate(operation_.whole, operation_.whole);
    auto made = options<gloo::ReduceOptions>();
    made->setInput(buffers_.send(), operation_.whole);
    made->setOutput(buffers_.recv(), operation_.whole);
    made->setRoot(0);
    made->setReduceFunction(add);
    return [made] { gloo::reduce(*made); };
  }

  Run reduce_scatter() {
    auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{buffers_.recv()}, static_cast<int>(operation_.whole),
        std::vector<int>(static_cast<size_t>(ranks()), static_cast<int>(block())));
    return [algorithm] { algorithm->run(); };
  }

  Run broadcast() {
    auto made = options<gloo::BroadcastOptions>();
    made->setOutput(rank() == 0 ? buffers_.send() : buffers_.recv(), operation_.whole);
    made->setRoot(0);
    return [made] { gloo::broadcast(*made); };
  }

  Run gather() {
    auto made = options<gloo::GatherOptions>();
    made->setInput(buffers_.send(), block());
    if (rank() == 0) made->setOutput(buffers_.recv(), operation_.whole);
    made->setRoot(0);
    return [made] { gloo::gather(*made); };
  }

  Run scatter() {
    auto made = options<gloo::ScatterOptions>();
    if (rank() == 0) {
      std::vector<float*> blocks;
      for (int to = 0; to < ranks(); ++to)
        blocks.push_back(buffers_.send() + static_cast<uint64_t>(to) * block());
      made->setInputs(blocks, block());
    }
    made->setOutput(buffers_.recv(), block());
    made->setRoot(0);
    return [made] { gloo::scatter(*made); };
  }

  Run send_receive() {
    const size_t bytes = operation_.whole * sizeof(float);
    std::shared_ptr<gloo::transport::UnboundBuffer> out =
        context_->createUnboundBuffer(buffers_.send(), bytes);
    std::shared_ptr<gloo::transport::UnboundBuffer> in =
        context_->createUnboundBuffer(buffers_.recv(), bytes);
    const int next = (rank() + 1) % ranks();
    const int before = (rank() + ranks() - 1) % ranks();
    return [out, in, next, before] {
      constexpr uint64_t kSlot = 1;
      in->recv(before, kSlot);
      out->send(next, kSlot);
      if (!in->waitRecv(kTimeout) || !out->waitSend(kTimeout))
        throw std::runtime_error("Gloo: a send or receive was aborted");
    };
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  Operation operation_;
  PlainBuffers buffers_;
  uint64_t copied_ = 0;  ///< elements, before each operation
  Run run_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Place& place) {
  return std::make_unique<GlooBackend>(place);
}

}  // namespace ina::peers

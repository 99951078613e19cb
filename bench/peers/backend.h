// The interface between the harness and a library whose collectives it measures. One file
// implements it for each library. Everything else within the measured time is the harness's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/perf/collective.h"

namespace ina::peers {

/// Where a process finds its job. The MPI libraries know it from their own launcher.
struct Place {
  int rank = -1;
  int ranks = 0;
  std::string url;         ///< INA: of the switch
  std::string rendezvous;  ///< folder in which ranks find each other, where they need one
  std::string address = "127.0.0.1";  ///< Gloo: of this rank's host
  uint32_t slot_bytes = 1024;         ///< forwarding: payload of a frame
  uint32_t window = 128;              ///< forwarding: frames ahead of those that have come
};

/// A measured operation: of float32; sums add; rank 0 is the root.
struct Operation {
  perf::Collective collective{};
  uint64_t whole = 0;  ///< elements, as in bench/perf/collective.h
  perf::Shape shape;   ///< of this rank
};

/// The buffers that one operation reads and writes. A broadcast's root has nothing but `send`.
struct Buffers {
  float* send = nullptr;
  const float* recv = nullptr;
};

/// Any failure is thrown as std::runtime_error.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// The library and its version, in one line.
  virtual std::string version() const = 0;
  /// Algorithms, or kinds of buffers, that are measured apart; none: the library lacks it.
  virtual std::vector<std::string> modes(perf::Collective collective) = 0;

  /// All ranks call these two together, in the same order. One set of buffers at a time.
  virtual Buffers allocate(const std::string& mode, const Operation& operation) = 0;
  virtual void release() = 0;

  /// Before the start line of each operation: copies the input of an algorithm in place.
  virtual void prepare() {}
  /// The operation of the last allocate() on its buffers; only this is timed.
  virtual void run() = 0;
  /// Lets the library finish what an earlier operation left half sent, if it has no thread for it.
  virtual void progress() {}
};

/// Joins the job. Defined by the one backend that is linked in.
std::unique_ptr<Backend> make_backend(const Place& place);

/// Ordinary memory: mapped, and touched when it is first written.
class PlainBuffers {
 public:
  PlainBuffers() = default;
  PlainBuffers(const PlainBuffers&) = delete;
  PlainBuffers& operator=(const PlainBuffers&) = delete;
  ~PlainBuffers() { release(); }

  void allocate(uint64_t send_elements, uint64_t recv_elements);
  void release();
  float* send() const { return send_; }
  float* recv() const { return recv_; }

 private:
  float* send_ = nullptr;
  float* recv_ = nullptr;
  size_t send_bytes_ = 0;
  size_t recv_bytes_ = 0;
};

}  // namespace ina::peers

// The control messages of one worker. To the worker the bridge is the switch, and to the switch it
// is a worker on the shm port. docs/memif.md says which messages pass.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "control/client.h"
#include "transport/bulk_copy.h"
#include "transport/shm_transport.h"
#include "wire/frame.h"

namespace ina::memif {

/// The identity of a joined worker's frames, and the shape of the switch's rings.
struct Binding {
  wire::Address worker;
  JobId job{};
  uint64_t job_key = 0;
  uint32_t lanes = 1;
  uint32_t slot_bytes = 0;
};

/// The bridge's memif interfaces, by number. Each serves one worker at a time.
class Interfaces {
 public:
  virtual ~Interfaces() = default;
  /// From now on packets pass between the worker's frames and `transport`. Where the worker sends
  /// its frames to, or why not.
  virtual Result<wire::Address> attach(uint32_t interface, const Binding& binding,
                                       client::ShmTransport& transport) = 0;
  /// `transport` is not used any more.
  virtual void detach(uint32_t interface) = 0;
};

class Session {
 public:
  /// `switch_socket`: where the switch is asked, once the worker has sent a message, and `trust`
  /// says whom to take for it. `barred`: why every request of this worker is refused; empty: none
  /// is.
  Session(control::Connection worker, std::string barred, std::string switch_socket,
          control::Trust trust, Interfaces& interfaces);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Passes on messages of the worker, or of the switch. False: this is the end, destroy the
  /// session. To the worker the end looks like that of a switch, and the worker comes back by
  /// itself; to the switch like the worker's.
  bool on_worker();
  bool on_switch();

  /// Tells the worker that its place is needed for others; it may try again. This is the end.
  void give_way(const std::string& text);

  int worker_fd() const { return worker_.fd(); }
  /// -1: the switch was not asked for anything yet.
  int switch_fd() const { return switch_.fd(); }
  /// The switch has taken the worker into a job.
  bool has_worker() const { return transport_ != nullptr; }
  /// "job train rank 3 (pid 4711)", as far as it is known.
  std::string name() const;
  const control::PeerCredentials& peer() const { return peer_; }

 private:
  template <class Handle>
  bool read(const control::Connection& from, Handle&& handle);
  bool from_worker(const control::Json& body);
  bool from_switch(control::Received& received);
  std::optional<control::request::Message> rewritten_join(const control::Json& body);
  Result<control::answer::Joined> attach(control::Heard heard);
  bool refuse(const Error& error);
  void leave_interface();

  control::Connection worker_;
  const control::PeerCredentials peer_;
  control::Connection switch_;
  const std::string barred_;
  const std::string switch_socket_;
  const control::Trust trust_;
  Interfaces& interfaces_;
  client::BulkCopier copier_{1, 1};
  std::string job_;
  int64_t rank_ = 0;
  uint32_t interface_ = 0;
  wire::Address address_;                            ///< of the worker's frames
  std::unique_ptr<client::ShmTransport> transport_;  ///< once it has joined
};

}  // namespace ina::memif

// Memory files that workers send: their regions of the shm port, and memory that they register, so
// that the lanes add straight from it. The doorman receives and examines the files, the mapper maps
// them, and then the worker's request goes on. Meanwhile nothing else is read from the worker. See
// docs/protocol.md, "Registered memory and result buffers".
#pragma once

#include <functional>
#include <map>
#include <string>

#include "control/doorman.h"
#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/lanes/lanes.h"
#include "switchd/memory/mapper.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

class PeerMemory {
 public:
  /// All of them must outlive it. `doorman`: nullptr: no files are taken. `attached`: a worker's
  /// region is there.
  PeerMemory(Lanes& lanes, Resources& resources, Connections& connections,
             control::Doorman* doorman, std::function<void(Client&)> attached)
      : lanes_(lanes),
        resources_(resources),
        connections_(connections),
        doorman_(doorman),
        attached_(std::move(attached)) {}

  /// The next message of the client, which carries descriptors and was only looked at. If it is not
  /// taken, nothing can be taken from the client any more.
  void on_descriptors(Client& client, const control::Json& body);
  void on_unregister(Client& client, const control::request::Unregister& message);
  /// The doorman has answered, or has gone.
  void on_doorman(const Epoll& epoll);
  /// False: the task was another's.
  bool on_mapped(Mapper::Done& done);
  /// Its connection is about to be closed.
  void forget(const Client& client);

 private:
  std::string refusal(const Client& client, const control::request::Message& message) const;
  Client* asking(uint64_t token) const;
  control::Request resume(Client& client);
  void on_file(Client& line, control::Doorman::Answer& answer);
  void on_region(Client& line, Result<io::shm::Region>& region);
  void on_registered(Client& client, uint32_t number, Result<io::shm::Region>& region);

  Lanes& lanes_;
  Resources& resources_;
  Connections& connections_;
  control::Doorman* doorman_;
  std::function<void(Client&)> attached_;
  /// A request for which the doorman or the mapper works.
  struct Asked {
    int fd = -1;  ///< its connection; -1: that has gone
    control::PeerCredentials peer;
    bool mapping = false;  ///< the mapper has it
  };
  std::map<uint64_t, Asked> asking_;  ///< by token
};

}  // namespace ina::switchd

// A channel as a member of its job, or group: how it takes its place at the switch, stops when the
// switch goes, and comes back at the next one. Meanwhile no thread drives the engine, and callers
// wait.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/direct_memory.h"
#include "client/explanations.h"
#include "client/farewell.h"
#include "client/link.h"
#include "client/peer_errors.h"
#include "client/progress.h"
#include "client/session.h"
#include "client/settings.h"
#include "membership/admission.h"
#include "membership/attachment.h"
#include "membership/joiner.h"
#include "membership/member_groups.h"
#include "membership/rejoin.h"
#include "membership/splits.h"

namespace ina::client {

/// On the thread that joins, and afterwards on the background thread.
class ChannelMember final : public membership::ReturningMember {
 public:
  /// What a channel consists of besides. All must outlive it.
  struct Channel {
    const Settings& settings;
    Session& session;
    uint32_t id;  ///< of the group; 0: of the job itself
    Link& link;
    membership::Attachment& attachment;
    membership::Callers& callers;
    Progress& progress;
    DirectMemory& memory;
    Explanations& explanations;
    membership::Splits& splits;
    membership::MemberGroups& member_groups;
    Farewell& farewell;
    PeerErrors& peer_errors;
  };
  explicit ChannelMember(const Channel& channel);

  // The job itself.
  /// `url`: that of the settings.
  Result<membership::Joiner::Joined> join(const Url& url, Nanos deadline);
  /// The switch knows nothing of the job.
  bool job_is_gone() const { return admission_.job_is_gone(); }
  /// Tries until the job runs again, or has failed, or the session ends.
  void rejoin();

  // A group.
  /// Opens frames by the way of `parent`'s, if that has frames: of the channel of whose ranks the
  /// group is made.
  Result<void> share(const membership::Attachment& parent);
  /// Asks for its place: the switch's answers do the rest.
  void ask_to_join();
  /// Asks to come back as a group whose job runs again.
  void ask_to_rejoin();
  /// The switch has a place for it: its first, or that which it had before a restart.
  void on_joined(const answer::Joined& joined, control::Heard& heard);
  /// All its workers have attached.
  void on_ready(const answer::Ready& ready);

  // Both.
  /// The control connection broke.
  void go_away();
  void on_waiting(const answer::Waiting& waiting);

 private:
  // membership::ReturningMember
  void open(std::unique_ptr<FrameTransport> frames) override;
  void begin(const EngineConfig& config) override;
  void register_memory(Transport& transport) override;
  void connect(std::unique_ptr<Transport> transport) override;
  void set_epoch(uint32_t epoch) override;
  bool going_on() const override;
  int wake_fd() const override;
  void drain_wakes() override;
  const EngineConfig& engine_config() const override;
  request::Rejoin rejoin_message() const override;
  void on_registered(const answer::Registered& registered) override;
  void come_back(const EngineConfig& told, std::unique_ptr<Transport> transport,
                 const answer::Ready& ready) override;
  void on_refused(const Error& error) override;
  void on_ended(const Error& error) override;
  void end(int status, const std::string& text) override;

  Channel channel_;
  membership::Admission admission_;
  // When the switch went.
  Standing standing_;
  std::vector<uint64_t> held_;  ///< of a job in a tree: request::Rejoin::held
  /// The engine's configuration and the transport of a group from its next `ready` on.
  struct Return {
    EngineConfig told;
    std::unique_ptr<Transport> transport;
  };
  std::optional<Return> return_;
};

}  // namespace ina::client

// How a member joins its job: it finds the switch, asks for a place, takes it, and waits for the
// other workers. Once, by the thread that joins, before another reads the connection. Groups are
// joined while their job runs.
#pragma once

#include <map>
#include <string>

#include "membership/admission.h"
#include "membership/attachment.h"
#include "membership/member.h"
#include "membership/settings.h"
#include "membership/switch_connection.h"
#include "transport/url.h"

namespace ina::membership {

class Joiner {
 public:
  enum class Joined {
    kReady,  ///< all workers have joined
    kLost,   ///< the switch went; it may have told others that all have
  };

  /// All must outlive it.
  Joiner(const Settings& settings, SwitchConnection& connection, Attachment& attachment,
         Admission& admission, Member& member)
      : settings_(settings),
        connection_(connection),
        attachment_(attachment),
        admission_(admission),
        member_(member) {}

  /// `url`: that of the settings. `shared`: further settings that all members of the job must have
  /// alike, by name.
  Result<Joined> join(const client::Url& url, const std::map<std::string, std::string>& shared,
                      Nanos deadline);

 private:
  Result<void> open_transport(const client::Url& url, Nanos deadline);
  Result<control::Heard> ask(const request::Join& join, Nanos deadline);
  Result<Joined> await_ready(Nanos deadline);
  tl::unexpected<Error> timed_out(const std::string& missing, const std::string& why) const;
  Nanos absent_ns() const;
  std::string absent_hint(ina_status status) const;

  const Settings& settings_;
  SwitchConnection& connection_;
  Attachment& attachment_;
  Admission& admission_;
  Member& member_;
};

}  // namespace ina::membership

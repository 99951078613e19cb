// How a worker joins its job: it finds the switch, asks for a place, takes it, and waits for the
// other workers. Once, by the thread that calls ina_init, before there is a background thread.
// Groups are joined while their job runs (groups.cc).
#pragma once

#include <string>

#include "client/admission.h"
#include "client/link.h"
#include "client/session.h"
#include "client/settings.h"
#include "transport/url.h"

namespace ina::client {

class Joiner {
 public:
  enum class Joined {
    kReady,  ///< all workers have joined
    kLost,   ///< the switch went; it may have told others that all have
  };

  /// All must outlive it.
  Joiner(const Settings& settings, Session& session, Link& link, Admission& admission)
      : settings_(settings), session_(session), link_(link), admission_(admission) {}

  /// `url`: that of the settings.
  Result<Joined> join(const Url& url, Nanos deadline);

 private:
  Result<void> open_transport(const Url& url, Nanos deadline);
  Result<void> check_memif(const Url& url) const;
  Result<control::Heard> ask(Nanos deadline);
  Result<Joined> await_ready(Nanos deadline);
  tl::unexpected<Error> timed_out(const std::string& missing, const std::string& why) const;
  Nanos absent_ns() const;
  std::string absent_hint(ina_status status) const;

  const Settings& settings_;
  Session& session_;
  Link& link_;
  Admission& admission_;
};

}  // namespace ina::client

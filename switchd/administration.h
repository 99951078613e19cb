// Requests of administrators, and questions of other threads, carried out on the conductor's thread
// between other events. The conductor never waits for those who ask.
#pragma once

#include <string>

#include "control/admin/queue.h"
#include "switchd/jobs/job_administration.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/jobs/job_table.h"
#include "switchd/reload.h"
#include "switchd/reports/slot_map.h"
#include "switchd/reports/status.h"
#include "switchd/reports/status_answers.h"
#include "switchd/reports/trace_answers.h"

namespace ina::switchd {

class Administration {
 public:
  /// All of them must outlive it.
  Administration(const JobTable& jobs, JobMaker& maker, JobAdministration& admin_jobs,
                 Reload& reload, StatusReport& status, SlotMap& slot_map,
                 StatusAnswers& status_answers, TraceAnswers& trace_answers,
                 Connections& connections)
      : jobs_(jobs),
        maker_(maker),
        admin_jobs_(admin_jobs),
        reload_(reload),
        status_(status),
        slot_map_(slot_map),
        status_answers_(status_answers),
        trace_answers_(trace_answers),
        connections_(connections) {}

  /// A message on a connection of an administrator. One whose sender has gone does nothing.
  void on_message(Client& client, const control::request::Message& message);

  /// As by a message. `who`: asks, for the log.
  void reload(const std::string& who);
  /// To another thread.
  admin::Answer answer(admin::Question question);

 private:
  // What each message asks for. `who`: asks, for the log.
  AdminAnswer carry_out(const control::request::CreateJob& asked, const std::string& who) {
    return admin_jobs_.create(asked, who);
  }
  AdminAnswer carry_out(const control::request::AbortJob& asked, const std::string& who) {
    return admin_jobs_.abort(asked, who);
  }
  AdminAnswer carry_out(const control::request::KickWorker& asked, const std::string& who) {
    return admin_jobs_.kick(asked, who);
  }
  AdminAnswer carry_out(const control::request::Drain&, const std::string& who) {
    return drain(true, who);
  }
  AdminAnswer carry_out(const control::request::Undrain&, const std::string& who) {
    return drain(false, who);
  }
  AdminAnswer carry_out(const control::request::GetDrain&, const std::string&) {
    return draining();
  }
  AdminAnswer carry_out(const control::request::GetSlots&, const std::string&) {
    return slot_map_.make();
  }
  AdminAnswer carry_out(const control::request::Reload& asked, const std::string& who) {
    return reload_.carry_out(asked, who);
  }
  AdminAnswer carry_out(const control::request::GetPolicy&, const std::string&) {
    return reload_.policy();
  }
  AdminAnswer carry_out(const control::request::SetPolicy& asked, const std::string& who) {
    return reload_.set_policy(asked, who);
  }
  /// There is one for messages of the type.
  template <class Message>
  static constexpr bool is_carried_out() {
    return requires(Administration & self, const Message& asked, const std::string& who) {
      self.carry_out(asked, who);
    };
  }

  template <class Message>
  AdminAnswer administer(const Message& asked, const std::string& who);
  template <class Message>
  void administer(Client& client, const Message& asked);
  AdminAnswer drain(bool on, const std::string& who);
  AdminAnswer draining() const;

  const JobTable& jobs_;
  JobMaker& maker_;
  JobAdministration& admin_jobs_;
  Reload& reload_;
  StatusReport& status_;
  SlotMap& slot_map_;
  StatusAnswers& status_answers_;
  TraceAnswers& trace_answers_;
  Connections& connections_;
};

}  // namespace ina::switchd

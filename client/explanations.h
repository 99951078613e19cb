// Why a channel waits, or has ended, in words: those of the switch, and what this worker knows of
// its own packets.
#pragma once

#include <string>

#include "client/progress.h"
#include "client/settings.h"
#include "control/messages.h"
#include "membership/attachment.h"
#include "membership/callers.h"
#include "membership/switch_connection.h"

namespace ina::client {

namespace request = control::request;
namespace answer = control::answer;

/// From any thread.
class Explanations {
 public:
  /// `channel`: of the connection. All must outlive it.
  Explanations(const Settings& settings, membership::SwitchConnection& connection, uint32_t channel,
               const membership::Attachment& attachment, membership::Callers& callers,
               Progress& progress)
      : settings_(settings),
        connection_(connection),
        channel_(channel),
        attachment_(attachment),
        callers_(callers),
        progress_(progress) {}

  /// Asks the switch why the channel waits. Under no lock.
  std::string explain();
  /// Why nothing goes on without the switch; empty if it is there.
  std::string away_text() const;
  /// A caller gives up, and says `text`: the job ends by a time-out. Returns what is known beyond
  /// the text.
  std::string give_up(const std::string& text);
  /// The switch ended the job.
  void end_by_switch(Error error);

  // On the background thread: messages of the switch.
  void on_explain(const answer::Explain& explain);
  void on_dropped(const answer::Dropped& dropped);

 private:
  std::string trouble_text(const std::string& said) const;

  const Settings& settings_;
  membership::SwitchConnection& connection_;
  const uint32_t channel_;
  const membership::Attachment& attachment_;
  membership::Callers& callers_;
  Progress& progress_;

  // Under the lock of Callers.
  std::string explanation_;
  std::string dropped_text_;  ///< the last that the switch said of frames that it dropped
  bool giving_up_ = false;
};

}  // namespace ina::client

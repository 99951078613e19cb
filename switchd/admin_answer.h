// How the switch answers requests of administrators, and others about jobs that they may name.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "common/json/json.h"

namespace ina::switchd {

struct AdminError {
  enum class Code {
    kInvalid,      ///< the request makes no sense in any state of the switch
    kNotFound,     ///< there is no such job or worker
    kExists,       ///< there is such a job already
    kBusy,         ///< with a request of another; again later
    kNoRoom,       ///< it does not fit; the text says by how much
    kUnavailable,  ///< the switch drains, or stops
    kInternal,
  };
  Code code = Code::kInternal;
  std::string text;
};

/// The content of control::answer::Done.
using AdminAnswer = tl::expected<nlohmann::json, AdminError>;

}  // namespace ina::switchd

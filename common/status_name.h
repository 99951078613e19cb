// Names of statuses, for people.
#pragma once

#include "ina/ina.h"

namespace ina {

/// "INA_ERR_TIMEOUT"; something else says that the number is none.
inline const char* name_of(int status) {
  switch (status) {
    case INA_OK:
      return "INA_OK";
    case INA_IN_PROGRESS:
      return "INA_IN_PROGRESS";
    case INA_ERR_INVALID:
      return "INA_ERR_INVALID";
    case INA_ERR_TIMEOUT:
      return "INA_ERR_TIMEOUT";
    case INA_ERR_NO_SWITCH:
      return "INA_ERR_NO_SWITCH";
    case INA_ERR_VERSION:
      return "INA_ERR_VERSION";
    case INA_ERR_REFUSED:
      return "INA_ERR_REFUSED";
    case INA_ERR_RANK_TAKEN:
      return "INA_ERR_RANK_TAKEN";
    case INA_ERR_MISMATCH:
      return "INA_ERR_MISMATCH";
    case INA_ERR_PEER_LOST:
      return "INA_ERR_PEER_LOST";
    case INA_ERR_SWITCH_LOST:
      return "INA_ERR_SWITCH_LOST";
    case INA_ERR_ABORTED:
      return "INA_ERR_ABORTED";
    case INA_ERR_NO_MEMORY:
      return "INA_ERR_NO_MEMORY";
    case INA_ERR_UNSUPPORTED:
      return "INA_ERR_UNSUPPORTED";
    case INA_ERR_FORKED:
      return "INA_ERR_FORKED";
    case INA_ERR_INTERNAL:
      return "INA_ERR_INTERNAL";
    default:
      return "unknown status";
  }
}

}  // namespace ina

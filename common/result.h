// Result<T>: errors inside the project. Status codes leave through the C ABI, exceptions through
// the C++ header only.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "ina/ina.h"

namespace ina {

struct Error {
  ina_status status = INA_ERR_INTERNAL;
  std::string text;  ///< whole sentence for a person: what failed, where, what to do
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ina_status status, std::string text) {
  return tl::unexpected<Error>(Error{status, std::move(text)});
}

}  // namespace ina

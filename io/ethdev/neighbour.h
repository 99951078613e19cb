// The little that a port answers for its own address, so that plain hosts can reach it: ARP
// requests and ICMP echo.
#pragma once

#include <cstddef>
#include <span>

#include "wire/frame.h"

namespace ina::io {

/// Turns `frame` (one whole frame, without FCS) into its answer in place and returns true, if it is
/// an ARP request or an ICMP echo request for `own`. Otherwise leaves it as it is.
bool answer_in_place(std::span<std::byte> frame, const wire::Address& own);

}  // namespace ina::io

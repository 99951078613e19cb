// The answers of a port for its own address, so that plain hosts can reach it: ARP replies and ICMP
// echo replies.
#pragma once

#include <cstddef>
#include <span>

#include "wire/frame.h"

namespace ina::io {

/// Turns `frame` (one whole frame, without FCS) into its answer in place and returns true, if it is
/// an ARP request or an ICMP echo request for `own`. Otherwise leaves it as it is.
bool answer_in_place(std::span<std::byte> frame, const wire::Address& own);

/// The IPv4 address that `frame` is for: the destination of an IPv4 packet, the target of an ARP
/// request; 0 if it is neither or too short to tell. VLAN tags are not looked through.
uint32_t addressed_ip(std::span<const std::byte> frame);

}  // namespace ina::io

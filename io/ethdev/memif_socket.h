// The socket on which a memif server listens. DPDK's driver does not remove one that a killed
// process left behind, and then refuses to start.
#pragma once

#include <string_view>

namespace ina::io {

/// `devargs`: of the device about to be made. If it is a memif server whose socket lies in the file
/// system and nobody listens there, the socket is removed; everything else is left alone.
void remove_stale_memif_socket(std::string_view devargs);

}  // namespace ina::io

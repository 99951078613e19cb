#include "tests/hostile/packet_socket.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>

#include "tests/hostile/forge.h"

namespace ina::hostile {

Result<PacketSocket> PacketSocket::open(const std::string& interface) {
  // Protocol 0: nothing is received.
  Fd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
  if (!fd || address.sll_ifindex == 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail(INA_ERR_INVALID,
                "cannot send from interface " + interface + ": " + std::strerror(errno));
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes);
  return PacketSocket(std::move(fd));
}

PacketSocket::PacketSocket(Fd fd)
    : fd_(std::move(fd)), bytes_(kBatch * Forge::kMaxBytes), parts_(kBatch), headers_(kBatch) {
  for (size_t i = 0; i < kBatch; ++i) {
    parts_[i].iov_base = bytes_.data() + i * Forge::kMaxBytes;
    headers_[i].msg_hdr.msg_iov = &parts_[i];
    headers_[i].msg_hdr.msg_iovlen = 1;
  }
}

void PacketSocket::add(std::span<const std::byte> frame) {
  std::memcpy(parts_[count_].iov_base, frame.data(), frame.size());
  parts_[count_++].iov_len = frame.size();
}

size_t PacketSocket::flush() {
  size_t done = 0;
  size_t taken = 0;
  while (done < count_) {
    const int sent =
        ::sendmmsg(fd_.get(), headers_.data() + done, static_cast<unsigned>(count_ - done), 0);
    if (sent > 0) {
      done += static_cast<size_t>(sent);
      taken += static_cast<size_t>(sent);
    } else if (errno != EINTR) {
      ++done;  // longer than the interface allows, or no room
    }
  }
  count_ = 0;
  return taken;
}

}  // namespace ina::hostile

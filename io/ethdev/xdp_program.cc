#include "io/ethdev/xdp_program.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/ethdev/eal.h"
#include "io/ethdev/xdp_object.h"
#include "io/ethdev/xdp_take.h"

namespace ina::io {
namespace {

tl::unexpected<Error> failed(const std::string& interface, const std::string& what) {
  return fail(INA_ERR_INTERNAL,
              "Interface " + interface + ": " + what + " (" + std::strerror(errno) + ").");
}

/// In memory, so that nothing has to be found on disk.
Fd object_file() {
  Fd file(::memfd_create("ina_xdp.o", MFD_CLOEXEC));
  const std::span<const unsigned char> object(kXdpObject);
  if (file &&
      ::write(file.get(), object.data(), object.size()) != static_cast<ssize_t>(object.size()))
    file.reset();
  return file;
}

template <class Info>
constexpr std::string_view kLinkOf;  ///< in /proc/self/fd
template <>
constexpr std::string_view kLinkOf<bpf_prog_info> = "anon_inode:bpf-prog";
template <>
constexpr std::string_view kLinkOf<bpf_map_info> = "anon_inode:bpf-map";

/// The program or map that `matches`: a descriptor that the driver has left open. The kernel gives
/// them by their ids, too, but to CAP_SYS_ADMIN only.
template <class Info>
Fd object_of_driver(auto&& matches) {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(*entry, gone) != kLinkOf<Info>) continue;
    const int fd = std::atoi(entry->path().filename().c_str());
    Info info{};
    __u32 bytes = sizeof info;
    if (::bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && matches(info))
      return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  errno = error ? error.value() : ENOENT;
  return Fd();
}

/// The map `name` of a program.
Fd map_of(int program, std::string_view name) {
  std::array<__u32, 8> ids{};
  bpf_prog_info info{};
  info.nr_map_ids = ids.size();
  info.map_ids = reinterpret_cast<uintptr_t>(ids.data());
  __u32 bytes = sizeof info;
  if (::bpf_obj_get_info_by_fd(program, &info, &bytes) != 0) return Fd();
  const std::span maps(ids.data(), std::min<size_t>(info.nr_map_ids, ids.size()));
  return object_of_driver<bpf_map_info>([&](const auto& map) {
    return name == map.name && std::ranges::find(maps, map.id) != maps.end();
  });
}

/// A process killed before take_over() left the program behind. A program in use is attached by a
/// link, which makes the removal fail. Without CAP_SYS_ADMIN nobody can tell, and it stays.
bool removes_left_over(int if_index, __u32 attached) {
  const Fd program(::bpf_prog_get_fd_by_id(attached));
  bpf_prog_info info{};
  __u32 bytes = sizeof info;
  return program && ::bpf_obj_get_info_by_fd(program.get(), &info, &bytes) == 0 &&
         std::string_view(info.name) == "ina_xdp" && ::bpf_xdp_detach(if_index, 0, nullptr) == 0;
}

}  // namespace

Result<std::unique_ptr<XdpProgram>> XdpProgram::make(const std::string& interface) {
  const auto if_index = static_cast<int>(::if_nametoindex(interface.c_str()));
  if (if_index == 0) return failed(interface, "it does not exist");
  __u32 attached = 0;
  if (::bpf_xdp_query_id(if_index, 0, &attached) != 0)
    return failed(interface, "it does not tell whether it has an XDP program");
  if (attached != 0 && !removes_left_over(if_index, attached))
    return fail(
        INA_ERR_REFUSED,
        "Interface " + interface + ": it has an XDP program already (id " +
            std::to_string(attached) +
            "). By AF_XDP one port or worker at a time can use an interface: use AF_PACKET, "
            "or end the other; if there is none, 'ip link set dev " +
            interface + " xdp off' removes the program.");
  Fd file = object_file();
  if (!file) return failed(interface, "no memory for its XDP program");
  return std::unique_ptr<XdpProgram>(new XdpProgram(interface, if_index, std::move(file)));
}

XdpProgram::XdpProgram(std::string interface, int if_index, Fd file)
    : interface_(std::move(interface)), if_index_(if_index), file_(std::move(file)) {}

std::string XdpProgram::path() const {
  return "/proc/self/fd/" + std::to_string(file_.get());
}

Result<void> XdpProgram::take_over() {
  file_.reset();
  __u32 id = 0;
  if (::bpf_xdp_query_id(if_index_, 0, &id) != 0 || id == 0)
    return failed(interface_, "its XDP program is not there");
  const Fd program =
      object_of_driver<bpf_prog_info>([id](const auto& info) { return info.id == id; });
  if (!program) return failed(interface_, "its XDP program cannot be taken over");
  // The driver attaches it for ever. Only a detached program can be attached by a link.
  if (::bpf_xdp_detach(if_index_, 0, nullptr) != 0)
    return failed(interface_, "its XDP program cannot be detached");
  link_ = Fd(::bpf_link_create(program.get(), if_index_, BPF_XDP, nullptr));
  if (!link_) return failed(interface_, "its XDP program cannot be attached by a link");
  take_map_ = map_of(program.get(), "ina_take");
  if (!take_map_) return failed(interface_, "its XDP program has no map ina_take");
  return {};
}

bool XdpProgram::is_attached() const {
  bpf_link_info info{};
  __u32 bytes = sizeof info;
  return ::bpf_obj_get_info_by_fd(link_.get(), &info, &bytes) != 0 ||
         info.xdp.ifindex == static_cast<__u32>(if_index_);
}

Result<void> XdpProgram::take_all() {
  return take({.what = INA_XDP_ALL, .ip = 0, .udp_port = 0, .zero = 0});
}

Result<void> XdpProgram::take_datagrams(uint32_t ip, uint16_t udp_port) {
  return take({.what = INA_XDP_DATAGRAMS, .ip = htonl(ip), .udp_port = htons(udp_port), .zero = 0});
}

Result<void> XdpProgram::take(const ina_xdp_take& what) {
  const __u32 first = 0;
  if (::bpf_map_update_elem(take_map_.get(), &first, &what, BPF_ANY) != 0)
    return failed(interface_, "its XDP program cannot be told what to take");
  return {};
}

BpfMessages::BpfMessages()
    : before_(::libbpf_set_print([](libbpf_print_level level, const char* format, va_list values) {
        char line[200] = "";
        const int length = std::vsnprintf(line, sizeof line, format, values);
        std::string_view text(line);
        if (text.ends_with('\n')) text.remove_suffix(1);
        if (level == LIBBPF_WARN) add_eal_error(text);
        return length;
      })) {}

BpfMessages::~BpfMessages() {
  ::libbpf_set_print(before_);
}

}  // namespace ina::io

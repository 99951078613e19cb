// Descriptors whose closing takes long or for ever, and one that is as it should be.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/sealed_memory.h"
#include "tests/support/temp_dir.h"

namespace ina::test {

/// A worker's memory as a switch wants it.
inline Fd sealed_file(size_t bytes) {
  Fd file(::memfd_create("test-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string content(bytes, 'x');
  EXPECT_EQ(::write(file.get(), content.data(), bytes), static_cast<ssize_t>(bytes));
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, kRegionSeals), 0);
  return file;
}

/// A TCP connection whose closing waits a minute for a peer that does not read.
class LingeringSocket {
 public:
  LingeringSocket() {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* name = reinterpret_cast<sockaddr*>(&address);
    const int little = 4096;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    EXPECT_EQ(::bind(listener.get(), name, length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), name, &length), 0);
    ours_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(ours_.get(), name, length), 0);
    theirs_ = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger wait{1, 60};
    EXPECT_EQ(::setsockopt(ours_.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
    const std::vector<char> much(1 << 16);
    while (::send(ours_.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
  }
  /// Its end ends what waits.
  ~LingeringSocket() {
    theirs_.reset();
    if (closing_.joinable()) closing_.join();
  }
  int fd() const { return ours_.get(); }
  /// Closes it here; the receiver then has the last descriptor. If the receiver is done already,
  /// this one is the last, and not this thread waits.
  void let_go() {
    const int number = ours_.get();
    closing_ = std::thread([last = std::move(ours_)]() mutable { last.reset(); });
    // A process that is started before would have it, too, and wait in exec. The number may be
    // another file's by now.
    for (int i = 0; i < 1'000 && ::fcntl(number, F_GETFD) >= 0; ++i) ::usleep(100);
  }

 private:
  Fd ours_;
  Fd theirs_;
  std::thread closing_;
};

/// A FUSE file system that answers everything but FLUSH. Root may mount one.
class SilentFuse {
 public:
  SilentFuse() {
    device_ = Fd(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device_) {
      problem_ = std::string("/dev/fuse: ") + std::strerror(errno);
      return;
    }
    // The mount is this thread's alone: nobody else sees it and none stays behind.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      problem_ = std::string("unshare: ") + std::strerror(errno);
      return;
    }
    const std::string options = "fd=" + std::to_string(device_.get()) +
                                ",rootmode=40000,user_id=" + std::to_string(::geteuid()) +
                                ",group_id=" + std::to_string(::getegid());
    if (::mount("ina-test", path().c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
      problem_ = std::string("mount: ") + std::strerror(errno);
      return;
    }
    mounted_ = true;
    server_ = std::thread([this] { serve(); });
  }
  ~SilentFuse() {
    if (!mounted_) return;
    // Ends all that waits for an answer.
    ::umount2(path().c_str(), MNT_FORCE | MNT_DETACH);
    stop_ = true;
    server_.join();
  }

  bool mounted() const { return mounted_; }
  const std::string& problem() const { return problem_; }
  Fd descriptor() const { return Fd(::open((path() + "/file").c_str(), O_RDONLY | O_CLOEXEC)); }
  /// Keeps a descriptor of this process's, whose closing would wait, until the mount has gone.
  void keep(Fd file) { kept_.push_back(std::move(file)); }

 private:
  std::string path() const { return folder_ / ""; }
  template <class Body>
  void answer(uint64_t unique, const Body& body) {
    struct {
      fuse_out_header header;
      Body body;
    } reply{{sizeof(reply), 0, unique}, body};
    [[maybe_unused]] const ssize_t sent = ::write(device_.get(), &reply, sizeof(reply));
  }
  void answer_error(uint64_t unique, int error) {
    const fuse_out_header header{sizeof(header), -error, unique};
    [[maybe_unused]] const ssize_t sent = ::write(device_.get(), &header, sizeof(header));
  }
  static fuse_attr attributes(bool folder) {
    fuse_attr attr{};
    attr.ino = folder ? 1 : 2;
    attr.mode = folder ? (S_IFDIR | 0755) : (S_IFREG | 0644);
    attr.nlink = 1;
    return attr;
  }
  void serve() {
    std::vector<std::byte> buffer(1 << 18);
    while (!stop_) {
      pollfd waiter{device_.get(), POLLIN, 0};
      if (::poll(&waiter, 1, 50) <= 0) continue;
      const ssize_t got = ::read(device_.get(), buffer.data(), buffer.size());
      if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) {
        if (errno == ENODEV || errno == EBADF) return;
        continue;
      }
      fuse_in_header in;
      std::memcpy(&in, buffer.data(), sizeof(in));
      switch (in.opcode) {
        case FUSE_INIT: {
          fuse_init_out out{};
          out.major = FUSE_KERNEL_VERSION;
          out.minor = FUSE_KERNEL_MINOR_VERSION;
          out.max_write = 4096;
          answer(in.unique, out);
          break;
        }
        case FUSE_LOOKUP: {
          fuse_entry_out out{};
          out.nodeid = 2;
          out.entry_valid = 100;
          out.attr_valid = 100;
          out.attr = attributes(false);
          answer(in.unique, out);
          break;
        }
        case FUSE_GETATTR: {
          fuse_attr_out out{};
          out.attr_valid = 100;
          out.attr = attributes(in.nodeid == 1);
          answer(in.unique, out);
          break;
        }
        case FUSE_OPEN:
          answer(in.unique, fuse_open_out{});
          break;
        case FUSE_FLUSH:  // never
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
          break;
        default:
          answer_error(in.unique, in.opcode == FUSE_RELEASE ? 0 : ENOSYS);
      }
    }
  }

  const TempDir folder_;
  Fd device_;
  bool mounted_ = false;
  std::string problem_;
  std::atomic<bool> stop_{false};
  std::thread server_;
  std::vector<Fd> kept_;  ///< closed after the mount has gone
};

}  // namespace ina::test

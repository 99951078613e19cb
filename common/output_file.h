// A file for a result that is ready only at the end of long work.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/fd.h"
#include "common/result.h"

namespace ina {

/// Opened before the work, so that a path that cannot be written is an error then and not a result
/// that is lost. The file's content stays until there is a result. "-" is standard output.
class OutputFile {
 public:
  /// An empty path: no file is wanted, and write() does nothing.
  static Result<OutputFile> open(const std::string& path) {
    OutputFile file(path);
    if (path.empty()) return file;
    if (path == "-") {
      file.fd_ = Fd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    } else {
      file.fd_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      file.is_new_ = file.fd_.get() >= 0;
      if (!file.is_new_ && errno == EEXIST)
        file.fd_ = Fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    }
    if (file.fd_.get() < 0) return fail(INA_ERR_INVALID, file.problem(errno));
    return file;
  }

  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)),
        fd_(std::move(other.fd_)),
        is_new_(std::exchange(other.is_new_, false)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  /// A file that was made for a result that never came is removed.
  ~OutputFile() {
    if (is_new_) ::unlink(path_.c_str());
  }

  bool is_wanted() const { return fd_.get() >= 0; }

  /// Replaces what the file holds, which stays if the result cannot be written whole.
  Result<void> write(std::string_view text) {
    if (!is_wanted()) return {};
    struct stat status {};
    const bool is_file = ::fstat(fd_.get(), &status) == 0 && S_ISREG(status.st_mode);
    const int error = is_file && path_ != "-" ? replace(text, status) : write_all(fd_.get(), text);
    if (error != 0) return fail(INA_ERR_INVALID, problem(error));
    is_new_ = false;
    return {};
  }

 private:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}
  std::string problem(int error) const {
    return "cannot write " + path_ + ": " + std::strerror(error) +
           (error == ENOSPC || error == EDQUOT ? ": free some space, or name another file" : "") +
           (error == EFBIG ? ": the limit of a file's size (ulimit -f) is too low" : "");
  }

  /// errno, or 0.
  static int write_all(int fd, std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(fd, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      text.remove_prefix(static_cast<size_t>(written));
    }
    return 0;
  }

  /// Another file with the text takes the place of the one that is there, or where a link leads.
  int replace(std::string_view text, const struct stat& old) {
    const std::unique_ptr<char, decltype(&::free)> real(::realpath(path_.c_str(), nullptr),
                                                        &::free);
    if (!real) return errno;
    const std::string made = real.get() + (".new-" + std::to_string(::getpid()));
    Fd fd(::open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    // In a folder that gives no room to another file its owner may still write to this one.
    if (!fd && (errno == EACCES || errno == EPERM || errno == EROFS))
      return ::ftruncate(fd_.get(), 0) != 0 ? errno : write_all(fd_.get(), text);
    if (!fd) return errno;
    int error = write_all(fd.get(), text);
    if (error == 0 && ::fchmod(fd.get(), old.st_mode & 07777) != 0) error = errno;
    if (error == 0 && ::fsync(fd.get()) != 0) error = errno;
    if (error == 0 && ::rename(made.c_str(), real.get()) != 0) error = errno;
    if (error != 0) ::unlink(made.c_str());
    return error;
  }

  std::string path_;
  Fd fd_;
  bool is_new_ = false;
};

}  // namespace ina

// A file for a result that is ready only at the end of long work.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

  /// Replaces what the file holds.
  Result<void> write(std::string_view text) {
    if (!is_wanted()) return {};
    struct stat status {};
    const bool is_file = ::fstat(fd_.get(), &status) == 0 && S_ISREG(status.st_mode);
    if (is_file && path_ != "-" && ::ftruncate(fd_.get(), 0) != 0)
      return fail(INA_ERR_INVALID, problem(errno));
    while (!text.empty()) {
      const ssize_t written = ::write(fd_.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return fail(INA_ERR_INVALID, problem(errno));
      text.remove_prefix(static_cast<size_t>(written));
    }
    is_new_ = false;
    return {};
  }

 private:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}
  std::string problem(int error) const {
    return "cannot write " + path_ + ": " + std::strerror(error);
  }

  std::string path_;
  Fd fd_;
  bool is_new_ = false;
};

}  // namespace ina

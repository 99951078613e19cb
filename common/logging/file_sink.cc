#include "common/logging/file_sink.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ina::logging {

namespace {

Result<Fd> open_file(const std::string& path, const std::string& setting) {
  // Not blocked by a FIFO that nobody reads.
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640));
  struct stat status {};
  if (fd && ::fstat(fd.get(), &status) == 0 && (S_ISREG(status.st_mode) || S_ISCHR(status.st_mode)))
    return fd;
  const int error = errno;
  std::string why = fd ? "it is neither a file nor a terminal" : std::strerror(error);
  if (!fd && error == ENOENT) why += "; create its folder first, or set another path";
  return fail(INA_ERR_INVALID, "cannot open the log " + path + " (" + setting + "): " + why);
}

}  // namespace

Result<std::shared_ptr<FileSink>> FileSink::open(const std::string& path,
                                                 const std::string& setting) {
  auto fd = open_file(path, setting);
  if (!fd) return tl::unexpected(fd.error());
  return std::shared_ptr<FileSink>(new FileSink(path, setting, std::move(*fd)));
}

Result<void> FileSink::reopen() {
  auto fd = open_file(path_, setting_);
  if (!fd) return fail(fd.error().status, fd.error().text + "; the log goes on where it was");
  const std::lock_guard lock(mutex_);
  fd_ = std::move(*fd);
  return {};
}

void FileSink::release() {
  const std::lock_guard lock(mutex_);
  holds_ = false;
  write(std::exchange(held_, {}));
}

std::string FileSink::discard() {
  const std::lock_guard lock(mutex_);
  return std::exchange(held_, {});
}

void FileSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  const std::string_view text(line.data(), line.size());
  if (holds_)
    held_ += text;
  else
    write(text);
}

void FileSink::write(std::string_view text) {
  if (cut_ && ::write(fd_.get(), "\n", 1) == 1) cut_ = false;
  if (cut_) return;
  // A disk that is full loses lines, not the switch.
  const size_t whole = text.size();
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd_.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      cut_ = text.size() != whole;
      return;
    }
    text.remove_prefix(static_cast<size_t>(wrote));
  }
}

}  // namespace ina::logging

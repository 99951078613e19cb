// The text of a system call's error, with the limit of this process that may be the cause.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/result.h"

namespace ina {

/// "; raise the limit of open files (ulimit -n), which is 64", or nothing without such a limit.
inline std::string limit_text(decltype(RLIMIT_AS) limit, const char* what, const char* option) {
  rlimit now{};
  if (::getrlimit(limit, &now) != 0 || now.rlim_cur == RLIM_INFINITY) return {};
  const bool kibibytes = limit == RLIMIT_AS || limit == RLIMIT_FSIZE || limit == RLIMIT_MEMLOCK;
  return std::string("; raise the limit of ") + what + " (ulimit -" + option + "), which is " +
         std::to_string(kibibytes ? now.rlim_cur / 1024 : now.rlim_cur) + (kibibytes ? " KiB" : "");
}

/// The limit that an errno may come from, and what to do; empty: none.
inline std::string limit_text(int error) {
  if (error == EMFILE) return limit_text(RLIMIT_NOFILE, "open files", "n") + ", or close some";
  if (error == EFBIG) return limit_text(RLIMIT_FSIZE, "file sizes", "f");
  if (error == ENOMEM) return limit_text(RLIMIT_AS, "address space", "v");
  if (error == EAGAIN) return limit_text(RLIMIT_NPROC, "processes and threads", "u");
  if (error == ENFILE) return "; the system has too many open files (fs.file-max)";
  return {};
}

/// `error`: an errno.
inline std::string system_text(int error) {
  return std::strerror(error) + limit_text(error);
}

/// The error of a failed system call of ours: `what` and the error's text. INA_ERR_NO_MEMORY if a
/// resource is used up.
inline Error system_error(const std::string& what, int error = errno) {
  const bool used_up = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
                       error == EAGAIN || error == EFBIG;
  return {used_up ? INA_ERR_NO_MEMORY : INA_ERR_INTERNAL, what + ": " + system_text(error)};
}

}  // namespace ina

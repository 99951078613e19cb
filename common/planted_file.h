// Files whose contents decide whom a process trusts: tokens, tickets, certificates.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace ina {

/// True of a file of another user (not root) in a folder that everybody may write to, such as /tmp:
/// anybody may have put it there before its owner did. `fd`: the open file.
inline bool may_be_planted(int fd, const std::string& path) {
  struct stat file {
  }, folder{};
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::fstat(fd, &file) != 0 || ::stat(parent.c_str(), &folder) != 0) return true;
  return file.st_uid != 0 && file.st_uid != ::geteuid() && (folder.st_mode & S_IWOTH) != 0;
}

inline std::string planted_text(const std::string& what) {
  return what +
         " belongs to another user, in a folder that everybody may write to: anybody may have put "
         "it there. Move it to a folder of your own";
}

}  // namespace ina

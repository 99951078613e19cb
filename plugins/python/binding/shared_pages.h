// Memory that libina can register: of the package ina and of ina.torch.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <ina/ina.hpp>

namespace ina::python {

inline size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// A memory file (ina_register), mapped as a whole. Zeroed.
class SharedPages {
 public:
  /// `bytes`: rounded up to pages. `name`: as the system shows it. Throws ina::Exception.
  SharedPages(const char* name, size_t bytes)
      : bytes_(whole_pages(bytes)), file_(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    void* mapped = MAP_FAILED;
    if (file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(bytes_)) == 0)
      mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) {
      const std::string why = std::strerror(errno);
      close_file();
      throw Exception(INA_ERR_NO_MEMORY,
                      "no shared memory of " + std::to_string(bytes_) + " bytes: " + why);
    }
    data_ = mapped;
    ::madvise(data_, bytes_, MADV_HUGEPAGE);  // where the system lets shared memory have them
  }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  ~SharedPages() {
    if (data_) ::munmap(data_, bytes_);
    close_file();
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int file() const { return file_; }
  /// The pages stay mapped.
  void close_file() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }
  /// The pages stay mapped for ever.
  void leave() { data_ = nullptr; }

 private:
  const size_t bytes_;
  int file_;
  void* data_ = nullptr;
};

}  // namespace ina::python

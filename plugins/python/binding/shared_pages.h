// Memory that libina can register: of the package ina and of ina.torch.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include <ina/ina.hpp>

namespace ina::python {

inline size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// Files that are mapped for sharing. A forked child gets them as it gets all other memory: what it
/// writes is its own. Pages to which it has not written show what its parent has written since.
class PagesOfParent {
 public:
  static PagesOfParent& all() {
    static auto* const one = new PagesOfParent;  // a fork may come at the very end
    return *one;
  }
  void add(void* data, size_t bytes, int file) {
    const std::lock_guard lock(mutex_);
    pages_[data] = {bytes, file};
  }
  void remove(void* data) {
    const std::lock_guard lock(mutex_);
    pages_.erase(data);
  }

 private:
  struct Pages {
    size_t bytes;
    int file;
  };
  PagesOfParent() {
    ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                     [] { all().make_private(); });
  }
  /// In the child, with the mutex. Only calls of the system: other threads may have held any lock.
  void make_private() {
    for (auto& [data, pages] : pages_) {
      if (pages.file < 0) continue;  // private already: this process was forked, too
      ::mmap(data, pages.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, pages.file, 0);
      pages.file = -1;
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::map<void*, Pages> pages_;
};

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
    PagesOfParent::all().add(data_, bytes_, file_);
    ::madvise(data_, bytes_, MADV_HUGEPAGE);  // where the system lets shared memory have them
  }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  ~SharedPages() {
    if (data_) {
      PagesOfParent::all().remove(data_);
      ::munmap(data_, bytes_);
    }
    close_file();
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int file() const { return file_; }
  /// The pages stay mapped for ever, and the file open.
  void leave() {
    data_ = nullptr;
    file_ = -1;
  }

 private:
  void close_file() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  const size_t bytes_;
  int file_;
  void* data_ = nullptr;
};

}  // namespace ina::python

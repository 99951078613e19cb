#include "plugins/torch/registered.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <ATen/ATen.h>
#include <ina/ina.hpp>

#include "plugins/torch/buffers.h"

namespace ina::plugin {

namespace {

/// A memory file, mapped as a whole.
class SharedPages {
 public:
  /// Throws ina::Exception.
  explicit SharedPages(size_t bytes)
      : bytes_(bytes), file_(::memfd_create("ina-tensor", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    void* mapped = MAP_FAILED;
    if (file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(bytes)) == 0)
      mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) {
      const std::string why = std::strerror(errno);
      close_file();
      throw Exception(INA_ERR_NO_MEMORY,
                      "no shared memory of " + std::to_string(bytes) + " bytes: " + why);
    }
    data_ = mapped;
    ::madvise(data_, bytes, MADV_HUGEPAGE);  // where the system lets shared memory have them
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

/// The argument of a storage's deleter.
struct Registration {
  Registration(const std::shared_ptr<Job>& of, size_t bytes) : job(of), pages(bytes) {}
  const std::weak_ptr<Job> job;
  SharedPages pages;
};

void release(void* context) {
  const std::unique_ptr<Registration> own(static_cast<Registration*>(context));
  const auto job = own->job.lock();
  // Memory that the library takes for registered must not become other memory.
  if (job && !job->free_memory(own->pages.data())) own->pages.leave();
}

size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

bool move_to_registered(const std::shared_ptr<Job>& job, const at::Tensor& tensor) {
  require_dense_cpu("registered memory", tensor);
  const c10::Storage& storage = tensor.storage();
  const size_t used = storage.nbytes();
  if (used == 0 || storage.data_ptr().get_deleter() == &release) return false;
  auto own = std::make_unique<Registration>(job, whole_pages(used));
  SharedPages& pages = own->pages;
  job->register_memory(pages.file(), pages.data(), pages.bytes());
  pages.close_file();
  void* const data = pages.data();
  std::memcpy(data, storage.data(), used);
  storage.set_data_ptr(at::DataPtr(data, own.release(), &release, at::DeviceType::CPU));
  return true;
}

at::Tensor make_result(const std::shared_ptr<Job>& job, const at::Tensor& like) {
  require_dense_cpu("result buffers", like);
  void* const memory = job->alloc_result(like.nbytes());
  const auto free = [job = std::weak_ptr<Job>(job)](void* own) {
    if (const auto joined = job.lock()) joined->free_memory(own);
  };
  return at::from_blob(memory, {like.numel()}, free, like.options().requires_grad(false));
}

}  // namespace ina::plugin

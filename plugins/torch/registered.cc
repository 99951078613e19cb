#include "plugins/torch/registered.h"

#include <cstddef>
#include <cstring>

#include <ATen/ATen.h>
#include <ina/ina.hpp>

#include "plugins/python/binding/shared_pages.h"
#include "plugins/torch/buffers.h"

namespace ina::plugin {

namespace {

using python::SharedPages;

/// The argument of a storage's deleter.
struct Registration {
  Registration(const std::shared_ptr<Job>& of, size_t bytes)
      : job(of), pages("ina-tensor", bytes) {}
  const std::weak_ptr<Job> job;
  SharedPages pages;
};

void release(void* context) {
  const std::unique_ptr<Registration> own(static_cast<Registration*>(context));
  const auto job = own->job.lock();
  // Memory that the library takes for registered must not become other memory.
  if (job && !job->free_memory(own->pages.data())) own->pages.leave();
}

}  // namespace

bool move_to_registered(const std::shared_ptr<Job>& job, const at::Tensor& tensor) {
  require_dense_cpu("registered memory", tensor);
  const c10::Storage& storage = tensor.storage();
  const size_t used = storage.nbytes();
  if (used == 0 || storage.data_ptr().get_deleter() == &release) return false;
  auto own = std::make_unique<Registration>(job, used);
  SharedPages& pages = own->pages;
  job->register_memory(pages.file(), pages.data(), pages.bytes());
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

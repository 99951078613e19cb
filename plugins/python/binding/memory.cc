#include "plugins/python/binding/memory.h"

#include <utility>

#include <ina/ina.hpp>

#include "plugins/python/binding/results.h"
#include "plugins/python/binding/shared_pages.h"

namespace ina::python {

namespace {

/// With the GIL, which `joined` may need for its end. INA_OK without a context.
int give_back(const std::weak_ptr<Joined>& of, void* memory) {
  const auto joined = of.lock();
  if (!joined) return INA_OK;
  const py::gil_scoped_release no_gil;
  return joined->free_memory(memory);
}

/// Pages that a context has registered. libina's own (ina_alloc) would go with the context.
struct RegisteredPages {
  RegisteredPages(std::weak_ptr<Joined> of, size_t bytes)
      : joined(std::move(of)), pages("ina-python", bytes) {}
  RegisteredPages(const RegisteredPages&) = delete;
  RegisteredPages& operator=(const RegisteredPages&) = delete;
  ~RegisteredPages() {
    // Memory that the library takes for registered must not become other memory.
    if (registered && give_back(joined, pages.data()) != INA_OK) pages.leave();
  }

  const std::weak_ptr<Joined> joined;
  SharedPages pages;
  bool registered = false;
};

}  // namespace

Memory alloc(const Context& context, size_t bytes) {
  auto own = std::make_shared<RegisteredPages>(context.shared(), bytes);
  SharedPages& pages = own->pages;
  context.call(
      [&](ina_context* c) { return ina_register(c, pages.file(), pages.data(), pages.bytes()); });
  own->registered = true;
  void* const data = pages.data();
  return {std::move(own), data, bytes, false};
}

Memory alloc_result(const Context& context, size_t bytes) {
  void* memory = nullptr;
  context.call([&](ina_context* c) { return ina_alloc_result(c, bytes, &memory); });
  auto result =
      Result::make(static_cast<std::byte*>(memory), bytes,
                   [joined = std::weak_ptr(context.shared())](void* of) { give_back(joined, of); });
  context.joined().results()->add(result);
  void* const data = result->data();
  return {std::move(result), data, bytes, true};
}

// ---- Registration

Registration::Registration(const Context& context, const py::object& array, int memfd)
    : joined_(context.shared()),
      array_(std::make_unique<Array>("array", array, Array::Use::kRead)) {
  context.call(
      [&](ina_context* c) { return ina_register(c, memfd, array_->data(), array_->bytes()); });
}

Registration::~Registration() {
  // Memory that the library takes for registered must not become other memory.
  if (array_ && free_memory() != INA_OK) [[maybe_unused]]
    const auto* left = array_.release();
}

int Registration::free_memory() {
  return give_back(joined_, array_->data());
}

void Registration::close() {
  if (!array_) return;
  if (const int status = free_memory(); status != INA_OK) {
    const auto joined = joined_.lock();
    throw Exception(status, joined ? joined->text_of(status) : ina_status_name(status));
  }
  array_.reset();
}

bool Registration::closed() const {
  const auto joined = joined_.lock();
  return !array_ || !joined || joined->closed();
}

}  // namespace ina::python

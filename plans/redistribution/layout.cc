#include "plans/redistribution/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace ina::redistribution {
namespace {

/// As "x.0 of 2 ranks, x.1 of 3 ranks".
std::string parts_text(const Mesh& mesh, uint32_t axis) {
  std::string text;
  for (const PrimeAxis& prime : mesh.primes())
    if (prime.axis == axis)
      text += fmt::format("{}{}.{} of {} ranks", text.empty() ? "" : ", ", mesh.axes()[axis].name,
                          prime.digit, prime.size);
  return text.empty() ? "none" : text;
}

/// The prime axes that one name means: an axis, or a part of one ("x.1").
Expected<std::vector<PrimeId>> axes_named(const Mesh& mesh, std::string_view name) {
  const size_t dot = name.find('.');
  const auto axis = mesh.find(name.substr(0, dot));
  if (!axis) return tl::unexpected(fmt::format("the mesh {} has no axis '{}'", mesh.text(), name));
  std::vector<PrimeId> primes = mesh.primes_of(*axis);
  if (dot == std::string_view::npos) return primes;
  const auto digit = parse_number(name.substr(dot + 1));
  if (!digit || *digit >= primes.size())
    return tl::unexpected(fmt::format("the axis {} of {} ranks has no part '{}'; it has {}",
                                      mesh.axes()[*axis].name, mesh.axes()[*axis].size, name,
                                      parts_text(mesh, *axis)));
  return std::vector<PrimeId>{primes[primes.size() - 1 - *digit]};
}

Expected<Stack> parse_stack(const Mesh& mesh, std::string_view text, uint32_t& used,
                            std::vector<bool>& named) {
  Stack stack;
  if (text == "-") return stack;
  for (const std::string_view name : split(text, '*')) {
    const auto axes = axes_named(mesh, name);
    if (!axes) return tl::unexpected(axes.error());
    const std::string twice = fmt::format("a layout may use the axis {} once, not twice", name);
    if (axes->empty()) {  // an axis of one rank
      const uint32_t axis = *mesh.find(name);
      if (named[axis]) return tl::unexpected(twice);
      named[axis] = true;
    }
    for (const PrimeId axis : *axes) {
      if ((used >> axis & 1) != 0) return tl::unexpected(twice);
      used |= uint32_t{1} << axis;
      stack.push(axis);
    }
  }
  return stack;
}

/// The name of the part of a stack that begins at `first`; moves `first` behind it.
std::string name_at(const Mesh& mesh, const Stack& stack, size_t& first) {
  const PrimeAxis& prime = mesh.primes()[stack[first]];
  const std::vector<PrimeId> whole = mesh.primes_of(prime.axis);
  const std::string& name = mesh.axes()[prime.axis].name;
  if (stack.size - first >= whole.size() &&
      std::equal(whole.begin(), whole.end(), stack.begin() + first)) {
    first += whole.size();
    return name;
  }
  ++first;
  return fmt::format("{}.{}", name, prime.digit);
}

}  // namespace

uint64_t elements_of(const Shape& shape) {
  uint64_t elements = 1;
  for (const uint64_t size : shape) elements *= size;
  return elements;
}

std::string shape_text(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

uint32_t Layout::used() const {
  uint32_t used = 0;
  for (size_t d = 0; d < dimensions; ++d)
    for (const PrimeId axis : stacks[d]) used |= uint32_t{1} << axis;
  return used;
}

Expected<Layout> parse_layout(const Mesh& mesh, std::string_view text) {
  const auto parts = split(text, ',');
  if (parts.size() > kMostDimensions)
    return tl::unexpected(fmt::format("the layout {} has {} dimensions; at most {} are taken", text,
                                      parts.size(), kMostDimensions));
  Layout layout;
  uint32_t used = 0;
  std::vector<bool> named(mesh.axes().size());
  for (const std::string_view part : parts) {
    const auto stack = parse_stack(mesh, part, used, named);
    if (!stack) return tl::unexpected(fmt::format("layout {}: {}", text, stack.error()));
    layout[layout.dimensions++] = *stack;
  }
  return layout;
}

std::string layout_text(const Mesh& mesh, const Layout& layout) {
  std::string text;
  for (size_t d = 0; d < layout.dimensions; ++d) {
    if (d > 0) text += ",";
    if (layout[d].size == 0) text += "-";
    for (size_t i = 0; i < layout[d].size;) {
      if (i > 0) text += "*";
      text += name_at(mesh, layout[d], i);
    }
  }
  return text;
}

std::string axes_text(const Mesh& mesh, const std::vector<PrimeId>& axes) {
  Layout layout;
  layout.dimensions = 1;
  for (const PrimeId axis : axes) layout[0].push(axis);
  return layout_text(mesh, layout);
}

Expected<std::vector<PrimeId>> parse_axes(const Mesh& mesh, std::string_view text) {
  const auto layout = parse_layout(mesh, text);
  if (!layout) return tl::unexpected(layout.error());
  if (layout->dimensions != 1)
    return tl::unexpected(fmt::format("'{}' are no axes of one dimension", text));
  return std::vector<PrimeId>((*layout)[0].begin(), (*layout)[0].end());
}

uint64_t parts_of(const Mesh& mesh, const Stack& stack) {
  uint64_t parts = 1;
  for (const PrimeId axis : stack) parts *= mesh.size(axis);
  return parts;
}

uint64_t parts_of(const Mesh& mesh, const std::vector<PrimeId>& axes) {
  uint64_t parts = 1;
  for (const PrimeId axis : axes) parts *= mesh.size(axis);
  return parts;
}

uint64_t part_index(const Mesh& mesh, const Stack& stack, uint32_t rank) {
  uint64_t index = 0;
  for (const PrimeId axis : stack) index = index * mesh.size(axis) + mesh.coordinate(rank, axis);
  return index;
}

Shape tile_shape(const Mesh& mesh, const Layout& layout, const Shape& global) {
  Shape shape(global.size());
  for (size_t d = 0; d < global.size(); ++d) shape[d] = global[d] / parts_of(mesh, layout[d]);
  return shape;
}

Expected<void> check_layout(const Mesh& mesh, const Layout& layout, const Shape& global) {
  const std::string text = layout_text(mesh, layout);
  if (layout.dimensions != global.size())
    return tl::unexpected(fmt::format("the layout {} has {} dimensions, the array {} has {}", text,
                                      layout.dimensions, shape_text(global), global.size()));
  for (size_t d = 0; d < global.size(); ++d) {
    const uint64_t parts = parts_of(mesh, layout[d]);
    if (global[d] % parts != 0)
      return tl::unexpected(fmt::format(
          "layout {}: dimension {} of {} elements does not divide into {} parts; pad it to {}",
          text, d, global[d], parts, (global[d] / parts + 1) * parts));
  }
  return {};
}

size_t common_bottom(const Stack& a, const Stack& b) {
  size_t common = 0;
  while (common < a.size && common < b.size && a[common] == b[common]) ++common;
  return common;
}

}  // namespace ina::redistribution

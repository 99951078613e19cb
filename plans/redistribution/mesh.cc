#include "plans/redistribution/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ina::redistribution {
namespace {

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

Expected<void> check_axes(const std::vector<MeshAxis>& axes) {
  if (axes.empty()) return tl::unexpected<std::string>("the mesh has no axis");
  uint64_t ranks = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!is_name(axes[i].name))
      return tl::unexpected(fmt::format(
          "'{}' is no name of a mesh axis; names have letters, digits and _", axes[i].name));
    if (axes[i].size == 0)
      return tl::unexpected(fmt::format("the mesh axis {} has no rank", axes[i].name));
    for (size_t k = 0; k < i; ++k)
      if (axes[k].name == axes[i].name)
        return tl::unexpected(fmt::format("the mesh names the axis {} twice", axes[i].name));
    ranks *= axes[i].size;
    if (ranks > kMostRanks)
      return tl::unexpected(fmt::format("the mesh has more than {} ranks", kMostRanks));
  }
  return {};
}

}  // namespace

std::vector<uint32_t> prime_factors(uint64_t number) {
  std::vector<uint32_t> factors;
  for (uint64_t p = 2; p * p <= number; ++p)
    for (; number % p == 0; number /= p) factors.push_back(static_cast<uint32_t>(p));
  if (number > 1) factors.push_back(static_cast<uint32_t>(number));
  return factors;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at; (at = text.find(separator)) != std::string_view::npos;) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Expected<Mesh> Mesh::create(std::vector<MeshAxis> axes) {
  if (auto checked = check_axes(axes); !checked) return tl::unexpected(checked.error());
  Mesh mesh;
  mesh.axes_ = std::move(axes);
  uint32_t stride = 1;
  for (size_t i = mesh.axes_.size(); i-- > 0;) {
    uint32_t digit = 0;
    for (const uint32_t p : prime_factors(mesh.axes_[i].size)) {
      mesh.primes_.push_back({static_cast<uint32_t>(i), digit++, p, stride});
      stride *= p;
    }
  }
  mesh.ranks_ = stride;
  return mesh;
}

Expected<Mesh> Mesh::parse(std::string_view text) {
  std::vector<MeshAxis> axes;
  for (const std::string_view part : split(text, ',')) {
    const size_t equals = part.find('=');
    const auto size =
        equals == std::string_view::npos ? std::nullopt : parse_number(part.substr(equals + 1));
    if (!size)
      return tl::unexpected(
          fmt::format("'{}' is no mesh axis; a mesh is written as x=4,y=2", part));
    const uint64_t size_within = std::min<uint64_t>(*size, uint64_t{kMostRanks} + 1);
    axes.push_back({std::string(part.substr(0, equals)), static_cast<uint32_t>(size_within)});
  }
  return create(std::move(axes));
}

std::optional<uint32_t> Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == name) return static_cast<uint32_t>(i);
  return std::nullopt;
}

std::vector<PrimeId> Mesh::primes_of(uint32_t axis) const {
  std::vector<PrimeId> found;
  for (size_t i = primes_.size(); i-- > 0;)
    if (primes_[i].axis == axis) found.push_back(static_cast<PrimeId>(i));
  return found;
}

std::string Mesh::text() const {
  std::string text;
  for (const MeshAxis& axis : axes_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  return text;
}

Expected<void> check_ranks(const Mesh& mesh, uint64_t ranks) {
  if (mesh.ranks() == ranks) return {};
  return tl::unexpected(fmt::format("the mesh {} has {} positions, but the job has {} ranks",
                                    mesh.text(), mesh.ranks(), ranks));
}

}  // namespace ina::redistribution

// Names of enumerators, as files, command lines and control messages have them: one table for each
// enumeration, beside it, instead of a second enumeration for each reader.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ina {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

template <class T, size_t kCount>
using Names = std::array<Named<T>, kCount>;

/// "unknown" for a value that the table does not have.
template <class T, size_t kCount>
constexpr std::string_view name_in(const Names<T, kCount>& names, T value) {
  for (const Named<T>& named : names)
    if (named.value == value) return named.name;
  return "unknown";
}

/// Nothing if the table does not have the name.
template <class T, size_t kCount>
constexpr std::optional<T> value_in(const Names<T, kCount>& names, std::string_view name) {
  for (const Named<T>& named : names)
    if (named.name == name) return named.value;
  return std::nullopt;
}

/// True if each name and each value is there once.
template <class T, size_t kCount>
constexpr bool are_distinct(const Names<T, kCount>& names) {
  for (size_t i = 0; i < kCount; ++i)
    for (size_t j = 0; j < i; ++j)
      if (names[i].name == names[j].name || names[i].value == names[j].value) return false;
  return true;
}

}  // namespace ina

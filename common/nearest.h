// The name that somebody probably meant to type.
#pragma once

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace ina {

/// Levenshtein distance in bytes.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// The candidate that `given` was probably meant to be; empty if none is near.
inline std::string_view nearest(std::string_view given,
                                const std::vector<std::string_view>& candidates) {
  constexpr size_t kLongest = 64;  // nobody mistypes a name into more than that
  if (given.size() > kLongest) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, given.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = edit_distance(given, candidate);
    // Replacing every letter is no likeness.
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace ina

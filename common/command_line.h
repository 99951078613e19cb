// Command lines, the same in every program: options whose values have names, numbers within bounds,
// and one exit status and one sentence for every error.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/printable.h"
#include "wire/named.h"

namespace ina::command_line {

/// Exit status where the command line is wrong, or a file that it names is missing.
inline constexpr int kExitUsage = 2;

/// Values and their names, in the order in which they are shown.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

/// "auto, spin, yield"
template <class T>
std::string names_of(const Choices<T>& choices) {
  std::string text;
  for (const auto& [name, value] : choices) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// An option whose values have names, in any case. CLI11's own transformers print the values beside
/// the names, and those of a one-byte enum as bytes.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& option, T& value, Choices<T> choices,
                        const std::string& help) {
  std::string default_name;
  for (const auto& [name, known] : choices)
    if (known == value) default_name = name;
  const std::string names = names_of(choices);
  const auto set = [&value, option, names, choices = std::move(choices)](const std::string& given) {
    for (const auto& [name, known] : choices)
      if (CLI::detail::to_lower(name) == CLI::detail::to_lower(given)) {
        value = known;
        return;
      }
    throw CLI::ValidationError(option, "'" + given + "' is none of " + names);
  };
  return app.add_option_function<std::string>(option, set, help + ": " + names)
      ->type_name("NAME")
      ->default_str(default_name);
}

/// Adds an option with a table of names. `value` may be an std::optional, empty without the option.
template <class Value, class T, size_t kCount>
CLI::Option* add_choice(CLI::App& app, const std::string& option, Value& value,
                        const Names<T, kCount>& names, const std::string& help) {
  Choices<Value> choices;
  for (const Named<T>& named : names) choices.emplace_back(std::string(named.name), named.value);
  return add_choice(app, option, value, std::move(choices), help);
}

namespace detail {

template <class T>
std::string number_text(T number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

/// A validator that takes numbers for which `is_right`. `bounds` says which, in the help; and
/// behind "is not a number" and `relation` where one is wrong.
template <class T, class Predicate>
CLI::Validator number_check(const std::string& relation, const std::string& bounds,
                            Predicate is_right) {
  const auto check = [relation, bounds, is_right](std::string& text) {
    T number{};
    const bool right = CLI::detail::lexical_cast(text, number) && is_right(number);
    return right ? std::string() : "'" + text + "' is not a number " + relation + bounds;
  };
  return CLI::Validator(check, bounds);
}

}  // namespace detail

/// Bounds that an option's value must keep; both belong to it.
template <class T>
CLI::Validator between(T low, T high) {
  return detail::number_check<T>("in ", detail::number_text(low) + ".." + detail::number_text(high),
                                 [low, high](T number) { return number >= low && number <= high; });
}

template <class T>
CLI::Validator at_least(T low) {
  return detail::number_check<T>("of ", "at least " + detail::number_text(low), [low](T number) {
    return number >= low && std::isfinite(static_cast<double>(number));
  });
}

/// More than 0, by however little.
inline CLI::Validator positive() {
  return detail::number_check<double>(
      "", "above 0", [](double number) { return number > 0 && std::isfinite(number); });
}

namespace detail {

/// A transformation of "4 MiB" to the number that it means by `units`; takes numbers of the form
/// that `example` shows.
inline CLI::Validator unit_transform(std::map<std::string, uint64_t> units,
                                     const std::string& example) {
  const auto transform = [units = std::move(units), example](std::string& text) {
    const std::string wrong = "'" + text + "' is not " + example;
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    size_t unit = digits;
    while (unit < text.size() && text[unit] == ' ') ++unit;
    const auto factor = units.find(CLI::detail::to_lower(text.substr(unit)));
    uint64_t number = 0;
    if (factor == units.end() || !CLI::detail::lexical_cast(text.substr(0, digits), number) ||
        number > std::numeric_limits<int64_t>::max() / factor->second)
      return wrong;
    text = std::to_string(number * factor->second);
    return std::string();
  };
  return CLI::Validator(transform, "");
}

}  // namespace detail

/// "90", "90 s", "10m", "2 h", in seconds.
inline CLI::Validator duration() {
  return detail::unit_transform(
      {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86'400}},
      "a time such as 90s, 10m, 2h or 1d");
}

/// "4096", "64 KiB", "4MiB", in bytes.
inline CLI::Validator size() {
  return detail::unit_transform({{"", 1},
                                 {"b", 1},
                                 {"k", 1 << 10},
                                 {"kib", 1 << 10},
                                 {"m", 1 << 20},
                                 {"mib", 1 << 20},
                                 {"g", 1 << 30},
                                 {"gib", 1 << 30}},
                                "a size such as 4096, 64KiB or 4MiB");
}

/// The error in a command line, as one sentence.
inline std::string sentence_of(const CLI::ParseError& error) {
  return printable(error.what()) + "; --help lists what there is";
}

/// How a program ends whose command line was not taken: after --help and --version, which print,
/// with 0, else with kExitUsage and the reason on standard error. `program`: argv[0].
inline int end(const CLI::App& app, const CLI::ParseError& error, const std::string& program) {
  if (error.get_exit_code() == 0) return app.exit(error);
  const std::string name = std::filesystem::path(program).filename().string();
  std::fprintf(stderr, "%s: %s\n", printable(name).c_str(), sentence_of(error).c_str());
  return kExitUsage;
}

namespace detail {

/// True if the whole of `text` is a number of T, written in decimal.
template <class T>
bool is_number(const std::string& text) {
  T number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return false;
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(number);
  return true;
}

template <class T>
CLI::Validator strictly(const std::string& what) {
  return CLI::Validator(
      [what](std::string& text) {
        return is_number<T>(text) ? std::string() : "'" + text + "' is not a " + what;
      },
      "");
}

}  // namespace detail

/// Has all options that are numbers refuse what is none. CLI11 takes -1 for the largest number
/// without a sign, and any large one likewise.
inline void check_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    // Before all other checks.
    if (type.starts_with("UINT"))
      option->transform(detail::strictly<uint64_t>("whole number"));
    else if (type.starts_with("INT"))
      option->transform(detail::strictly<int64_t>("whole number"));
    else if (type.starts_with("FLOAT"))
      option->transform(detail::strictly<double>("number"));
  }
  for (CLI::App* command : app.get_subcommands({})) check_numbers(*command);
}

/// The exit status if the program is to end now, as end() has it.
inline std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  check_numbers(app);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return end(app, error, argc > 0 ? argv[0] : "");
  }
}

}  // namespace ina::command_line

#include "common/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <type_traits>

namespace ina::command_line {
namespace {

template <class T>
std::string number_text(T number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

/// A validator that takes numbers for which `is_right`. `bounds` says which, in the help; and
/// behind "is not a number" and `relation` where one is wrong.
template <class T, class Predicate>
Validator number_check(const std::string& relation, const std::string& bounds, Predicate is_right) {
  const auto check = [relation, bounds, is_right](std::string& text) {
    T number{};
    const bool right = CLI::detail::lexical_cast(text, number) && is_right(number);
    return right ? std::string() : "'" + text + "' is not a number " + relation + bounds;
  };
  return Validator(CLI::Validator(check, bounds));
}

/// A transformation of "4 MiB" to the number that it means by `units`; takes numbers of the form
/// that `example` shows.
Validator unit_transform(std::map<std::string, uint64_t> units, const std::string& example) {
  return Validator([units = std::move(units), example](std::string& text) {
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
  });
}

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

/// Has all options that are numbers refuse what is none. CLI11 takes -1 for the largest number
/// without a sign, and any large one likewise.
void check_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    // Before all other checks.
    if (type.starts_with("UINT"))
      option->transform(strictly<uint64_t>("whole number"));
    else if (type.starts_with("INT"))
      option->transform(strictly<int64_t>("whole number"));
    else if (type.starts_with("FLOAT"))
      option->transform(strictly<double>("number"));
  }
  for (CLI::App* command : app.get_subcommands({})) check_numbers(*command);
}

}  // namespace

Validator::Validator(std::function<std::string(std::string&)> check)
    : Validator(CLI::Validator(std::move(check), "")) {}
Validator::Validator(CLI::Validator validator)
    : validator_(std::make_shared<const CLI::Validator>(std::move(validator))) {}
std::string Validator::operator()(std::string& text) const {
  return (*validator_)(text);
}
Validator operator|(const Validator& a, const Validator& b) {
  return Validator(*a.validator_ | *b.validator_);
}

Option* Option::required() {
  option_.required();
  return this;
}
Option* Option::check(const Validator& validator) {
  option_.check(*validator.validator_);
  return this;
}
Option* Option::transform(const Validator& validator) {
  option_.transform(*validator.validator_);
  return this;
}
Option* Option::capture_default_str() {
  option_.capture_default_str();
  return this;
}
Option* Option::default_str(const std::string& text) {
  option_.default_str(text);
  return this;
}
Option* Option::type_name(const std::string& name) {
  option_.type_name(name);
  return this;
}
Option* Option::envname(const std::string& name) {
  option_.envname(name);
  return this;
}
Option* Option::delimiter(char separator) {
  option_.delimiter(separator);
  return this;
}
Option* Option::expected(int values) {
  option_.expected(values);
  return this;
}
Option* Option::take_all() {
  option_.take_all();
  return this;
}
Option* Option::each(const std::function<void(std::string)>& callback) {
  option_.each(callback);
  return this;
}
Option* Option::needs(const Option* other) {
  option_.needs(&other->option_);
  return this;
}
Option* Option::excludes(const Option* other) {
  option_.excludes(&other->option_);
  return this;
}
Option* Option::excludes(const std::string& other) {
  option_.excludes(other);
  return this;
}
std::string Option::get_name() const {
  return option_.get_name();
}
size_t Option::count() const {
  return option_.count();
}

App::App(const std::string& description, const std::string& name)
    : app_(std::make_shared<CLI::App>(description, name)) {}
App::App(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

Option* App::keep(CLI::Option* option) {
  return &options_.emplace_back(*option);
}

template <class T>
Option* App::add_option(const std::string& name, T& value, const std::string& help) {
  return keep(app_->add_option(name, value, help));
}
template <class T>
Option* App::add_option_function(const std::string& name, const std::function<void(const T&)>& set,
                                 const std::string& help) {
  return keep(app_->add_option_function<T>(name, set, help));
}
Option* App::add_flag(const std::string& name, bool& value, const std::string& help) {
  return keep(app_->add_flag(name, value, help));
}
Option* App::add_flag_callback(const std::string& name, const std::function<void()>& callback,
                               const std::string& help) {
  return keep(app_->add_flag_callback(name, callback, help));
}
void App::set_version_flag(const std::string& name, const std::string& version) {
  app_->set_version_flag(name, version);
}
App* App::add_subcommand(const std::string& name, const std::string& description) {
  CLI::App* const made = app_->add_subcommand(name, description);
  return &commands_.emplace_back(app_->get_subcommand_ptr(made));
}
void App::require_subcommand(int count) {
  app_->require_subcommand(count);
}
void App::fallthrough() {
  app_->fallthrough();
}
void App::footer(const std::string& text) {
  app_->footer(text);
}
void App::callback(const std::function<void()>& callback) {
  app_->callback(callback);
}

std::optional<int> App::parse(int argc, const char* const* argv) {
  check_numbers(*app_);
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);
    throw UsageError(error.what());
  }
}

Option* App::get_option(const std::string& name) {
  const CLI::Option* const wanted = app_->get_option(name);
  return &*std::ranges::find_if(options_, [&](const Option& o) { return &o.option_ == wanted; });
}
size_t App::count(const std::string& option) const {
  return app_->count(option);
}
std::string App::help() const {
  return app_->help();
}
std::string App::chosen_command() const {
  const auto given = app_->get_subcommands();
  return given.empty() ? "" : given.front()->get_name();
}

Option* add_names(App& app, const std::string& option, std::vector<std::string> names,
                  const std::string& default_name, std::function<void(size_t)> set,
                  const std::string& help) {
  std::string all;  // "auto, spin, yield"
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  const auto choose = [option, all, names = std::move(names),
                       set = std::move(set)](const std::string& given) {
    for (size_t i = 0; i < names.size(); ++i)
      if (CLI::detail::to_lower(names[i]) == CLI::detail::to_lower(given)) return set(i);
    throw UsageError(option + ": '" + given + "' is none of " + all);
  };
  return app.add_option_function<std::string>(option, choose, help + ": " + all)
      ->type_name("NAME")
      ->default_str(default_name);
}

template <class T>
Validator between(T low, T high) {
  return number_check<T>("in ", number_text(low) + ".." + number_text(high),
                         [low, high](T number) { return number >= low && number <= high; });
}

template <class T>
Validator at_least(T low) {
  return number_check<T>("of ", "at least " + number_text(low), [low](T number) {
    return number >= low && std::isfinite(static_cast<double>(number));
  });
}

Validator positive() {
  return number_check<double>("", "above 0",
                              [](double number) { return number > 0 && std::isfinite(number); });
}

Validator within(int low, int high) {
  return Validator(CLI::Validator(CLI::Range(low, high).description("")));
}

template <class T>
Validator one_of(std::initializer_list<T> values) {
  return Validator(CLI::Validator(CLI::IsMember(values)));
}

Validator duration() {
  return unit_transform({{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86'400}},
                        "a time such as 90s, 10m, 2h or 1d");
}

Validator size() {
  return unit_transform({{"", 1},
                         {"b", 1},
                         {"k", 1 << 10},
                         {"kib", 1 << 10},
                         {"m", 1 << 20},
                         {"mib", 1 << 20},
                         {"g", 1 << 30},
                         {"gib", 1 << 30}},
                        "a size such as 4096, 64KiB or 4MiB");
}

template <class T>
bool read_number(const std::string& text, T& number) {
  return CLI::detail::lexical_cast(text, number);
}

std::string sentence_of(const UsageError& error) {
  return printable(error.what()) + "; --help lists what there is";
}

int refuse(const UsageError& error, const std::string& program) {
  const std::string name = std::filesystem::path(program).filename().string();
  std::fprintf(stderr, "%s: %s\n", printable(name).c_str(), sentence_of(error).c_str());
  return kExitUsage;
}

std::optional<int> parse(App& app, int argc, const char* const* argv) {
  try {
    return app.parse(argc, argv);
  } catch (const UsageError& error) {
    return refuse(error, argc > 0 ? argv[0] : "");
  }
}

template Option* App::add_option(const std::string&, bool&, const std::string&);
template Option* App::add_option(const std::string&, int32_t&, const std::string&);
template Option* App::add_option(const std::string&, uint32_t&, const std::string&);
template Option* App::add_option(const std::string&, int64_t&, const std::string&);
template Option* App::add_option(const std::string&, uint64_t&, const std::string&);
template Option* App::add_option(const std::string&, double&, const std::string&);
template Option* App::add_option(const std::string&, std::string&, const std::string&);
template Option* App::add_option(const std::string&, std::optional<uint32_t>&, const std::string&);
template Option* App::add_option(const std::string&, std::optional<uint64_t>&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<uint32_t>&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<double>&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* App::add_option_function(const std::string&,
                                          const std::function<void(const uint32_t&)>&,
                                          const std::string&);
template Validator between(int, int);
template Validator between(uint32_t, uint32_t);
template Validator between(uint64_t, uint64_t);
template Validator between(double, double);
template Validator at_least(uint64_t);
template Validator at_least(double);
template Validator one_of(std::initializer_list<int>);
template Validator one_of(std::initializer_list<double>);
template Validator one_of(std::initializer_list<const char*>);
template bool read_number(const std::string&, uint64_t&);
template bool read_number(const std::string&, double&);

}  // namespace ina::command_line

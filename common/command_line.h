// Command lines, the same in every program: options whose values have names, numbers within bounds,
// and one exit status and one sentence for every error. CLI11 does the work, and only
// command_line.cc includes it: it takes the compiler longer than most programs' own code.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/printable.h"
#include "wire/named.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace ina::command_line {

/// Exit status where the command line is wrong, or a file that it names is missing.
inline constexpr int kExitUsage = 2;

/// What is wrong with a command line. Callbacks of options may throw it.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the text of a value must be. Returns what is wrong, else an empty string; transformations
/// change the text.
class Validator {
 public:
  explicit Validator(std::function<std::string(std::string&)> check);
  explicit Validator(CLI::Validator validator);
  std::string operator()(std::string& text) const;
  friend Validator operator|(const Validator& a, const Validator& b);

 private:
  friend class Option;
  std::shared_ptr<const CLI::Validator> validator_;
};

/// An option of an App, which owns it. Named after CLI11's, as App's functions are.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}
  Option(const Option&) = delete;
  Option& operator=(const Option&) = delete;

  Option* required();
  Option* check(const Validator& validator);
  Option* transform(const Validator& validator);
  Option* capture_default_str();
  Option* default_str(const std::string& text);
  Option* type_name(const std::string& name);
  Option* envname(const std::string& name);
  Option* delimiter(char separator);
  Option* expected(int values);
  Option* take_all();
  Option* each(const std::function<void(std::string)>& callback);
  Option* needs(const Option* other);
  Option* excludes(const Option* other);
  Option* excludes(const std::string& other);

  std::string get_name() const;
  /// How often it was given.
  size_t count() const;
  bool empty() const { return count() == 0; }

 private:
  friend class App;
  CLI::Option& option_;
};

/// The options of a program, or of one of its commands.
class App {
 public:
  explicit App(const std::string& description, const std::string& name = "");
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  /// T: one of those at the end of command_line.cc.
  template <class T>
  Option* add_option(const std::string& name, T& value, const std::string& help = "");
  /// T: std::string, uint32_t.
  template <class T>
  Option* add_option_function(const std::string& name, const std::function<void(const T&)>& set,
                              const std::string& help = "");
  Option* add_flag(const std::string& name, bool& value, const std::string& help = "");
  Option* add_flag_callback(const std::string& name, const std::function<void()>& callback,
                            const std::string& help);
  void set_version_flag(const std::string& name, const std::string& version);
  App* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand(int count);
  void fallthrough();
  void footer(const std::string& text);
  void callback(const std::function<void()>& callback);

  /// Throws UsageError. Returns the exit status after --help and --version, which print.
  std::optional<int> parse(int argc, const char* const* argv);

  Option* get_option(const std::string& name);
  size_t count(const std::string& option) const;
  std::string help() const;
  const std::list<Option>& options() const { return options_; }
  std::list<App>& commands() { return commands_; }
  /// The command that was given; empty without one.
  std::string chosen_command() const;

  /// For add_subcommand().
  explicit App(std::shared_ptr<CLI::App> app);

 private:
  Option* keep(CLI::Option* option);

  std::shared_ptr<CLI::App> app_;
  std::list<Option> options_;
  std::list<App> commands_;
};

/// Values and their names, in the order in which they are shown.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

/// An option whose values have names, in any case. CLI11's own transformers print the values beside
/// the names, and those of a one-byte enum as bytes. `set` gets a name's index.
Option* add_names(App& app, const std::string& option, std::vector<std::string> names,
                  const std::string& default_name, std::function<void(size_t)> set,
                  const std::string& help);

template <class T>
Option* add_choice(App& app, const std::string& option, T& value, Choices<T> choices,
                   const std::string& help) {
  std::string default_name;
  std::vector<std::string> names;
  for (const auto& [name, known] : choices) {
    if (known == value) default_name = name;
    names.push_back(name);
  }
  const auto set = [&value, choices = std::move(choices)](size_t i) { value = choices[i].second; };
  return add_names(app, option, std::move(names), default_name, set, help);
}

/// Adds an option with a table of names. `value` may be an std::optional, empty without the option.
template <class Value, class T, size_t kCount>
Option* add_choice(App& app, const std::string& option, Value& value, const Names<T, kCount>& names,
                   const std::string& help) {
  Choices<Value> choices;
  for (const Named<T>& named : names) choices.emplace_back(std::string(named.name), named.value);
  return add_choice(app, option, value, std::move(choices), help);
}

/// Bounds that an option's value must keep; both belong to it. T: int, uint32_t, uint64_t, double.
template <class T>
Validator between(T low, T high);
template <class T>
Validator at_least(T low);

/// More than 0, by however little.
Validator positive();

/// As between(), where the option's own text tells the bounds.
Validator within(int low, int high);

/// T: int, double, const char*.
template <class T>
Validator one_of(std::initializer_list<T> values);

/// "90", "90 s", "10m", "2 h", in seconds.
Validator duration();

/// "4096", "64 KiB", "4MiB", in bytes.
Validator size();

/// Reads the whole of `text` as CLI11 reads an option's value. T: uint64_t, double.
template <class T>
bool read_number(const std::string& text, T& number);

/// The error in a command line, as one sentence.
std::string sentence_of(const UsageError& error);

/// The exit status of a program whose command line was not taken; tells the reason on standard
/// error. `program`: argv[0].
int refuse(const UsageError& error, const std::string& program);

/// The exit status if the program is to end now.
std::optional<int> parse(App& app, int argc, const char* const* argv);

}  // namespace ina::command_line

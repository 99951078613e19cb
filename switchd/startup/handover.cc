#include "switchd/startup/handover.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/fd.h"

namespace ina::switchd {

namespace {

using Json = nlohmann::json;

constexpr const char* kVariable = "INA_SWITCHD_HANDOVER";

sigset_t held() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGHUP, SIGTERM, SIGINT}) ::sigaddset(&signals, signal);
  return signals;
}

/// The handover of a version without overrides has none.
std::vector<config::Override> overrides_of(const Json& json, const char* member) {
  std::vector<config::Override> overrides;
  const Json found = json.value(member, Json::object());
  for (const auto& [key, value] : found.items())
    if (value.is_string()) overrides.push_back({key, value.get<std::string>()});
  return overrides;
}

std::string text_of(const Handover& handover) {
  Json json = {{"text", handover.source.text},
               {"overrides", overrides_json(handover.source)},
               {"failure", handover.failure}};
  if (handover.previous) {
    json["previous"] = handover.previous->text;
    json["previous_overrides"] = overrides_json(*handover.previous);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Handover> handover_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("text")) return std::nullopt;
  Handover handover{.source = {json.value("text", ""), overrides_of(json, "overrides")},
                    .failure = json.value("failure", "")};
  if (json.contains("previous"))
    handover.previous =
        Source{json.value("previous", ""), overrides_of(json, "previous_overrides")};
  return handover;
}

/// A file without a name that has the text.
Fd memory_file(const std::string& text) {
  Fd fd(::memfd_create("ina-handover", MFD_CLOEXEC));
  for (size_t done = 0; fd && done < text.size();) {
    const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote <= 0) return {};
    done += static_cast<size_t>(wrote);
  }
  return fd;
}

/// Marks all descriptors from 3 on, also those that libraries opened without O_CLOEXEC.
void close_all_on_exec() {
  if (::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int fd = 0;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd > 2) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace

void hold_signals() {
  const sigset_t signals = held();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void release_signals() {
  const sigset_t signals = held();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

std::optional<Handover> take_handover() {
  const char* const said = std::getenv(kVariable);
  if (!said) return std::nullopt;
  const Fd fd(std::atoi(said));
  ::unsetenv(kVariable);
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode)) return std::nullopt;
  std::string text(static_cast<size_t>(file.st_size), '\0');
  if (::pread(fd.get(), text.data(), text.size(), 0) != file.st_size) return std::nullopt;
  return handover_of(text);
}

Program::Program(char** arguments) : arguments_(arguments) {
  std::error_code error;
  path_ = std::filesystem::read_symlink("/proc/self/exe", error);
}

std::string Program::problem() const {
  if (::access(path_.c_str(), X_OK) == 0) return {};
  return fmt::format("the switch cannot start again: {}: {}", path_, std::strerror(errno));
}

Error Program::execute(const Handover& handover) const {
  const Fd file = memory_file(text_of(handover));
  if (!file)
    return {INA_ERR_NO_MEMORY, std::string("cannot hand the configuration to the program that is "
                                           "to run: ") +
                                   std::strerror(errno)};
  close_all_on_exec();
  ::fcntl(file.get(), F_SETFD, 0);
  ::setenv(kVariable, std::to_string(file.get()).c_str(), 1);
  ::execv(path_.c_str(), arguments_);
  return {INA_ERR_INTERNAL,
          fmt::format("cannot execute {} again: {}", path_, std::strerror(errno))};
}

}  // namespace ina::switchd

#include "plugins/mpi/launcher.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "plugins/mpi/abi.h"

#if defined(OPEN_MPI)
#include <pmix.h>
#endif

namespace ina::mpi {

#if defined(OPEN_MPI)

namespace {

/// The functions of libpmix, which Open MPI itself loads later.
struct Pmix {
  explicit Pmix(void* library)
      : init(find<decltype(&PMIx_Init)>(library, "PMIx_Init")),
        finalize(find<decltype(&PMIx_Finalize)>(library, "PMIx_Finalize")),
        put(find<decltype(&PMIx_Put)>(library, "PMIx_Put")),
        commit(find<decltype(&PMIx_Commit)>(library, "PMIx_Commit")),
        get(find<decltype(&PMIx_Get)>(library, "PMIx_Get")) {}
  template <class Function>
  static Function find(void* library, const char* name) {
    return reinterpret_cast<Function>(::dlsym(library, name));
  }
  bool complete() const { return init && finalize && put && commit && get; }

  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Get) get;
};

constexpr const char* kKey = "ina-lib";

class PmixLauncher : public Launcher {
 public:
  explicit PmixLauncher(const Pmix& pmix) : pmix_(pmix) {}
  ~PmixLauncher() override {
    if (begun_) pmix_.finalize(nullptr, 0);  // PMIx counts: Open MPI goes on
  }

  bool tell_all() {
    begun_ = pmix_.init(&own_, nullptr, 0) == PMIX_SUCCESS;
    if (!begun_) return false;
    char yes[] = "1";
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = yes;
    return pmix_.put(PMIX_GLOBAL, kKey, &value) == PMIX_SUCCESS && pmix_.commit() == PMIX_SUCCESS;
  }

  bool has_library(int rank) override {
    pmix_proc_t peer = own_;
    peer.rank = static_cast<pmix_rank_t>(rank);
    // Whatever is published has been since MPI's start: a key that is not there will not come.
    pmix_info_t at_once{};
    PMIX_LOAD_KEY(at_once.key, PMIX_IMMEDIATE);
    at_once.value.type = PMIX_BOOL;
    at_once.value.data.flag = true;
    pmix_value_t* found = nullptr;
    if (pmix_.get(&peer, kKey, &at_once, 1, &found) != PMIX_SUCCESS || !found) return false;
    const bool said = found->type == PMIX_STRING;
    if (said) std::free(found->data.string);
    std::free(found);
    return said;
  }

 private:
  const Pmix pmix_;
  pmix_proc_t own_{};
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<Launcher> Launcher::tell() {
  if (!std::getenv("PMIX_NAMESPACE")) return nullptr;
  void* const library = ::dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return nullptr;
  const Pmix pmix(library);
  if (!pmix.complete()) return nullptr;
  auto launcher = std::make_unique<PmixLauncher>(pmix);
  if (!launcher->tell_all()) return nullptr;
  return launcher;
}

#else

namespace {

constexpr int kAnswerMs = 30'000;

/// Hydra's, by the lines of PMI-1, which MPICH itself speaks on the same descriptor.
class Hydra : public Launcher {
 public:
  Hydra(int fd, std::string rank) : fd_(fd), rank_(std::move(rank)) {}

  bool tell_all() {
    if (value_of(ask("cmd=init pmi_version=1 pmi_subversion=1"), "rc") != "0") return false;
    space_ = value_of(ask("cmd=get_my_kvsname"), "kvsname");
    return !space_.empty() && value_of(ask(of("put", rank_) + " value=1"), "rc") == "0";
  }

  bool has_library(int rank) override {
    const std::string answer = ask(of("get", std::to_string(rank)));
    return value_of(answer, "rc") == "0" && value_of(answer, "value") == "1";
  }

 private:
  std::string of(const char* command, const std::string& rank) const {
    return std::string("cmd=") + command + " kvsname=" + space_ + " key=ina-lib-" + rank;
  }

  /// Empty: there is no answer.
  std::string ask(std::string line) const {
    line += '\n';
    if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return {};
    std::string answer;
    for (char byte = 0; byte != '\n'; answer += byte) {
      pollfd readable{fd_, POLLIN, 0};
      if (::poll(&readable, 1, kAnswerMs) != 1 || ::read(fd_, &byte, 1) != 1) return {};
    }
    answer.back() = ' ';
    return ' ' + answer;
  }

  /// In " cmd=get_result rc=0 msg=success value=1 ".
  static std::string value_of(const std::string& answer, const std::string& name) {
    const size_t at = answer.find(' ' + name + '=');
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 2;
    return answer.substr(begin, answer.find(' ', begin) - begin);
  }

  const int fd_;
  const std::string rank_;
  std::string space_;
};

}  // namespace

/// Other launchers that set PMI_FD may not take a second `init`, MPICH's own.
std::unique_ptr<Launcher> Launcher::tell() {
  const char* const fd = std::getenv("PMI_FD");
  const char* const rank = std::getenv("PMI_RANK");
  if (!fd || !rank || !std::getenv("HYDI_CONTROL_FD")) return nullptr;
  auto launcher = std::make_unique<Hydra>(std::atoi(fd), rank);
  if (!launcher->tell_all()) return nullptr;
  return launcher;
}

#endif

}  // namespace ina::mpi

// A rank of a job that a fault is put into (scripts/bench_why.py): carries out the steps of its
// command line, and prints the outcome of each.
//   ina-why-worker URL JOB RANK WORLD STEP...
// STEP: COLLECTIVE[:COUNT[:ROOT[:DTYPE[:OP]]]] with a collective of kCalls below; split:COLOUR (the
// steps after it are the group's; root: those after it are the job's again); sleep:MS; spin:MS;
// stop (SIGSTOP); exit; finalize; loop:COUNT:MS (allreduces for ever, so long apart).
// Prints a line a step, "N STATUS TEXT", after "joined" or "join STATUS TEXT". Ends after the first
// step that fails.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/worker_arguments.h"
#include "ina/ina.h"

namespace {

struct Call {
  size_t count = 1000;
  int root = 0;
  ina_dtype dtype = INA_FLOAT32;
  ina_op op = INA_SUM;
  std::vector<std::byte> send, recv;
  std::vector<size_t> counts;  ///< of each rank, the last of them longer by `root`
};

using Collective = std::function<int(ina_context*, Call&)>;

const std::map<std::string, Collective> kCalls = {
    {"allreduce",
     [](ina_context* c, Call& a) {
       return ina_allreduce(c, a.send.data(), a.recv.data(), a.count, a.dtype, a.op, 0);
     }},
    {"reduce",
     [](ina_context* c, Call& a) {
       return ina_reduce(c, a.send.data(), a.recv.data(), a.count, a.dtype, a.op, a.root, 0);
     }},
    {"broadcast",
     [](ina_context* c, Call& a) {
       return ina_broadcast(c, a.send.data(), a.recv.data(), a.count, a.dtype, a.root, 0);
     }},
    {"gather",
     [](ina_context* c, Call& a) {
       return ina_gather(c, a.send.data(), a.recv.data(), a.count, a.dtype, a.root, 0);
     }},
    {"scatter",
     [](ina_context* c, Call& a) {
       return ina_scatter(c, a.send.data(), a.recv.data(), a.count, a.dtype, a.root, 0);
     }},
    {"all_gather",
     [](ina_context* c, Call& a) {
       return ina_all_gather(c, a.send.data(), a.recv.data(), a.count, a.dtype, 0);
     }},
    {"all_to_all",
     [](ina_context* c, Call& a) {
       return ina_all_to_all(c, a.send.data(), a.recv.data(), a.count, a.dtype, 0);
     }},
    {"reduce_scatter_block",
     [](ina_context* c, Call& a) {
       return ina_reduce_scatter_block(c, a.send.data(), a.recv.data(), a.count, a.dtype, a.op, 0);
     }},
    {"reduce_scatter",
     [](ina_context* c, Call& a) {
       return ina_reduce_scatter(c, a.send.data(), a.recv.data(), a.counts.data(), a.dtype, a.op,
                                 0);
     }},
    {"all_gatherv",
     [](ina_context* c, Call& a) {
       return ina_all_gatherv(c, a.send.data(), a.recv.data(), a.counts.data(), nullptr, a.dtype,
                              0);
     }},
    {"barrier", [](ina_context* c, Call&) { return ina_barrier(c, 0); }},
};

const std::map<std::string, ina_dtype> kDtypes = {
    {"float32", INA_FLOAT32}, {"int32", INA_INT32}, {"float64", INA_FLOAT64}};
const std::map<std::string, ina_op> kOps = {{"sum", INA_SUM}, {"max", INA_MAX}};

std::vector<std::string> words_of(const std::string& step) {
  std::vector<std::string> words;
  size_t at = 0;
  while (at != std::string::npos) {
    const size_t end = step.find(':', at);
    words.push_back(step.substr(at, end == std::string::npos ? end : end - at));
    at = end == std::string::npos ? end : end + 1;
  }
  return words;
}

class Worker {
 public:
  Worker(ina_context* job, int world) : job_(job), context_(job), world_(world) {}

  /// A status of ina.h.
  int step(const std::vector<std::string>& words) {
    const auto number = [&](size_t i) {
      return words.size() > i ? std::atol(words[i].c_str()) : 0;
    };
    const std::string& what = words[0];
    if (what == "sleep") return ::usleep(static_cast<useconds_t>(number(1)) * 1000), INA_OK;
    if (what == "spin") return spin(number(1));
    if (what == "stop") return ::raise(SIGSTOP), INA_OK;
    if (what == "exit") ::_exit(0);
    if (what == "root") return context_ = job_, INA_OK;
    if (what == "split") return split(static_cast<int32_t>(number(1)));
    if (what == "loop") return loop(static_cast<size_t>(number(1)), number(2));
    if (what == "finalize") {
      const int left = ina_finalize(job_, 0);
      std::printf("finalize %s %s\n", ina_status_name(left),
                  left == INA_OK ? "" : ina_last_error(nullptr));
      std::fflush(stdout);
      ::_exit(0);
    }
    Call call;
    if (words.size() > 1) call.count = static_cast<size_t>(number(1));
    if (words.size() > 2) call.root = static_cast<int>(number(2));
    if (words.size() > 3) call.dtype = kDtypes.at(words[3]);
    if (words.size() > 4) call.op = kOps.at(words[4]);
    return carry_out(what, call);
  }

  const char* error() const { return ina_last_error(context_); }

 private:
  int carry_out(const std::string& what, Call& call) {
    const size_t most = (call.count + 64) * static_cast<size_t>(world_) * sizeof(double);
    call.send.resize(most);
    call.recv.resize(most);
    call.counts.assign(static_cast<size_t>(ina_world_size(context_)), call.count);
    call.counts.back() += static_cast<size_t>(call.root);
    return kCalls.at(what)(context_, call);
  }

  /// Without a group the job stays, and has the error's text.
  int split(int32_t colour) {
    ina_context* group = nullptr;
    const int status = ina_split(job_, colour, 0, &group);
    if (status == INA_OK) context_ = group;
    return status;
  }

  int loop(size_t count, long pause_ms) {
    for (;;) {
      Call call;
      call.count = count;
      if (const int status = carry_out("allreduce", call); status != INA_OK) return status;
      ::usleep(static_cast<useconds_t>(pause_ms) * 1000);
    }
  }

  static int spin(long ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (std::chrono::steady_clock::now() < end) {
    }
    return INA_OK;
  }

  ina_context* const job_;
  ina_context* context_;
  const int world_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  ina_config config = ina::config_of(argv);
  ina_context* context = nullptr;
  if (const int status = ina_init(&config, &context); status != INA_OK) {
    std::printf("join %s %s\n", ina_status_name(status), ina_last_error(nullptr));
    return 0;
  }
  std::printf("joined\n");
  std::fflush(stdout);
  Worker worker(context, config.world_size);
  for (int i = 5; i < argc; ++i) {
    const int status = worker.step(words_of(argv[i]));
    std::printf("%s %s %s\n", argv[i], ina_status_name(status),
                status == INA_OK ? "" : worker.error());
    std::fflush(stdout);
    if (status != INA_OK) return 0;
  }
  // Its end would be a fault of its own.
  for (;;) ::pause();
}

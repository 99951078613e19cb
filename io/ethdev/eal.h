// Start and end of DPDK's environment (EAL), from a plain struct.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/huge_pages.h"
#include "common/result.h"

namespace ina::io {

/// Severity of a line that DPDK logs; smaller is more severe.
enum class EalLogLevel : uint8_t { kError, kWarning, kInfo };

struct EalConfig {
  HugePages huge = HugePages::kAuto;
  uint64_t memory_bytes = uint64_t{256} << 20;  ///< for packet buffers and rings
  std::string file_prefix;  ///< names this process among DPDK's; empty: "ina-<pid>"
  /// CPUs of the datapath lcores, as "2-5,7". With fewer CPUs than lcores, or when empty (all CPUs
  /// of the process), lcores float over them.
  std::string cpus;
  uint32_t lcores = 1;             ///< datapath lcores, numbered 1..lcores; lcore 0 is the caller
  std::vector<std::string> vdevs;  ///< "net_memif0,role=server,...": made at start
  std::vector<std::string> pci;    ///< addresses of PCI devices to take; none: PCI is not looked at
  std::vector<std::string> extra_args;  ///< given to the EAL as they are
  bool telemetry = false;               ///< DPDK's socket for dpdk-telemetry.py
  /// Receives what DPDK logs up to `log_level`, a line at a time, from any thread, until the Eal is
  /// destroyed. Empty: quiet.
  std::function<void(EalLogLevel, std::string_view)> log;
  EalLogLevel log_level = EalLogLevel::kWarning;
};

/// The running environment. DPDK allows one in the life of a process: a second start, even after
/// the first one ended, fails. Destroying it ends the log; DPDK's threads and memory stay until the
/// process ends, and nothing stays after that.
class Eal {
 public:
  /// Blocks for about 0.15 s. The calling thread becomes lcore 0, and its affinity is set to all
  /// CPUs that the process had. DPDK's own threads block all signals.
  static Result<Eal> start(const EalConfig& config);

  Eal(Eal&& other) noexcept;
  Eal& operator=(Eal&& other) noexcept;
  ~Eal();

  /// Removes the folder that DPDK makes for files of its prefix (/var/run/dpdk/<prefix>), in which
  /// we let it keep none, unless telemetry has its socket there. Done at the end anyway; for those
  /// who do not live to see it.
  void remove_runtime_folder();

  bool uses_hugepages() const { return uses_hugepages_; }

 private:
  Eal(bool uses_hugepages, bool telemetry);
  void stop();

  bool uses_hugepages_ = false;
  bool telemetry_ = false;
  bool running_ = false;
};

/// The lines that DPDK logged as errors since the last call, or the first few; empty: none.
std::string take_eal_errors();
/// Adds a line of a library that DPDK uses.
void add_eal_error(std::string_view line);

/// CPU numbers of a list such as "0,2-5", ascending, without repetition.
Result<std::vector<uint32_t>> parse_cpu_list(std::string_view list);

/// The arguments start() gives to the EAL; `available` are the CPUs of the process. CPUs that are
/// named may also be `isolated` ones, which are not among these.
Result<std::vector<std::string>> eal_arguments(const EalConfig& config,
                                               const std::vector<uint32_t>& available,
                                               bool use_hugepages,
                                               const std::vector<uint32_t>& isolated = {});

}  // namespace ina::io

// A whole switch within the test process: the daemon's conductor and lanes on plain threads,
// without DPDK.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control/client.h"
#include "switchd/conductor.h"
#include "switchd/lanes/lane.h"
#include "tests/support/temp_dir.h"

namespace ina::test {

struct SwitchOptions {
  uint32_t slots = 512;
  uint32_t slot_bytes = 1024;
  uint32_t slots_per_job = 64;
  uint32_t lanes = 1;
  uint32_t max_jobs = 16;
  uint32_t max_groups = 256;
  IdleMode idle = IdleMode::kAuto;
  Nanos rejoin_timeout_ns = 10'000'000'000;
  scheduler::PolicyOptions policy = {};  ///< its kind follows from the conductor's
  bool administered = false;             ///< administrators are listened to
  /// Sets all else that is to differ from the defaults.
  std::function<void(switchd::ConductorConfig&)> conductor = {};
  /// Called on each lane's thread before it polls.
  std::function<void()> on_lane_thread = {};
  /// Filled by the first lane from the beginning; it must outlive the switch.
  switchd::PacketTrace* trace = nullptr;
};

/// `FramePort`: the type of its Ethernet ports, of which its lanes have as many as the config.
template <class FramePort = switchd::NoFramePort>
class BasicTestSwitch {
 public:
  using Options = SwitchOptions;

  explicit BasicTestSwitch(const Options& options = {}) : BasicTestSwitch(options, "") {}
  /// With its files in `folder`, where they outlive it.
  BasicTestSwitch(const Options& options, const std::string& folder)
      : options_(options), folder_(folder.empty() ? own_folder_.emplace() / "" : folder + "/") {
    start();
  }
  ~BasicTestSwitch() { stop(); }

  void start() {
    const Options& options = options_;
    ConductorConfig config;
    config.control.socket = socket_path();
    config.aggregator = {options.slots, options.slot_bytes, options.policy};
    config.switchd.lcores = options.lanes;
    config.static_pools.slots_per_job = options.slots_per_job;
    config.switchd.max_jobs = options.max_jobs;
    config.switchd.max_groups = options.max_groups;
    config.switchd.max_groups_per_user = options.max_groups;
    config.control.rejoin_timeout_ns = options.rejoin_timeout_ns;
    config.rules.rto_min_ns = 2'000'000;  // loopback's times are short, and tests wait for some
    // On a busy machine the conductor's time passes without anybody's doing.
    config.work.burst_ns = 3'600'000'000'000;
    auto doorman = control::Doorman::start();
    ASSERT_TRUE(doorman) << doorman.error().text;
    doorman_ = std::move(*doorman);
    auto state = switchd::StateFile::open(state_path());
    ASSERT_TRUE(state) << state.error().text;
    if (options.administered) config.admin.socket = admin_path();
    if (options.conductor) options.conductor(config);
    std::vector<switchd::LaneLink*> links;
    for (uint32_t i = 0; i < options.lanes; ++i) {
      switchd::LaneConfig lane;
      lane.idle = options.idle;
      lane.shape = switchd::lane_shape(config.switchd, config.aggregator, i);
      rows_.emplace_back(aggregator::Aggregator::row_memory_bytes(lane.shape) / sizeof(Line));
      links_.push_back(std::make_unique<switchd::LaneLink>());
      links.push_back(links_.back().get());
      std::vector<FramePort*> frame_ports;
      for (size_t port = 0; port < config.frame_ports.size(); ++port)
        frame_ports.push_back(&frame_ports_.emplace_back());
      lanes_.push_back(std::make_unique<switchd::Lane<FramePort>>(
          lane, std::as_writable_bytes(std::span(rows_.back())), *links_.back(),
          std::move(frame_ports)));
    }
    conductor_ =
        std::make_unique<switchd::Conductor>(config, std::move(*state), links, doorman_.get());
    const auto opened = conductor_->open();
    EXPECT_TRUE(opened) << opened.error().text;
    // As the daemon does: the lanes run from here on.
    for (const auto& lane : lanes_)
      threads_.emplace_back([this, raw = lane.get()] {
        if (options_.on_lane_thread) options_.on_lane_thread();
        raw->run();
      });
    if (options.trace) run(switchd::command::SetTrace{options.trace}, *links_.front());
    conductor_thread_ = std::thread([this] { conductor_->run(); });
  }

  void stop() {
    if (!conductor_thread_.joinable()) return;
    conductor_->stop();
    conductor_thread_.join();
    for (auto& link : links_) run(switchd::command::Stop{}, *link);
    for (auto& thread : threads_) thread.join();
    conductor_.reset();  // lets go of the state file
    doorman_.reset();
    threads_.clear();
    lanes_.clear();
    frame_ports_.clear();
    links_.clear();
    rows_.clear();
  }

  std::string socket_path() const { return folder_ + "switch.sock"; }
  std::string state_path() const { return folder_ + "switch.sock.state"; }
  std::string admin_path() const { return folder_ + "admin.sock"; }
  std::string url() const { return "shm:" + socket_path(); }
  /// Where workers on other hosts would join, if `conductor` set listen.
  std::string tcp_address() const {
    return "tcp:127.0.0.1:" + std::to_string(conductor_->tcp_port());
  }
  std::string tls_address() const {
    return "tls:127.0.0.1:" + std::to_string(conductor_->tcp_port());
  }
  switchd::Conductor& conductor() const { return *conductor_; }
  const control::Doorman& doorman() const { return *doorman_; }
  /// A frame port of the first lane.
  FramePort& frame_port(size_t port) { return frame_ports_[port]; }
  control::Json status() const {
    auto status = control::query_status(socket_path(), 5'000'000'000);
    EXPECT_TRUE(status) << status.error().text;
    return status ? *status : control::Json::object();
  }
  /// As inactl asks.
  Result<control::Json> administer(const control::request::Message& message) const {
    return control::administer(admin_path(), message, 10'000'000'000, {});
  }

 private:
  using ConductorConfig = switchd::ConductorConfig;
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  /// While the conductor's thread does not run.
  template <class Command>
  static void run(const Command& command, switchd::LaneLink& lane) {
    switchd::Posted<Command> posted(command);
    lane.post(&posted);
    while (!posted.done.load()) ::usleep(100);
  }

  std::optional<TempDir> own_folder_;
  Options options_;
  std::string folder_;  ///< ends in a slash
  std::vector<std::vector<Line>> rows_;
  std::vector<std::unique_ptr<switchd::LaneLink>> links_;
  std::deque<FramePort> frame_ports_;  ///< lane after lane
  std::vector<std::unique_ptr<switchd::Lane<FramePort>>> lanes_;
  std::vector<std::thread> threads_;
  std::unique_ptr<control::Doorman> doorman_;
  std::unique_ptr<switchd::Conductor> conductor_;
  std::thread conductor_thread_;
};

using TestSwitch = BasicTestSwitch<>;

}  // namespace ina::test

// Compiled once for all tests, by switch_fixture.cc.
extern template class ina::switchd::Lane<ina::switchd::NoFramePort>;
extern template class ina::test::BasicTestSwitch<>;

// Which XDP programs an interface may have when an AF_XDP device is opened. Needs root.
#include "io/ethdev/xdp_program.h"

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "common/receive_queues.h"

namespace ina::io {
namespace {

int run(const std::string& command) {
  return std::system((command + " >/dev/null").c_str());
}

class Xdp : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    ASSERT_EQ(run("ip link add near numrxqueues 2 type veth peer name far"), 0);
  }
  void TearDown() override {
    if (::geteuid() == 0) run("ip link delete near");
  }
  static int if_index() { return static_cast<int>(::if_nametoindex("near")); }
  static __u32 attached() {
    __u32 id = 0;
    EXPECT_EQ(::bpf_xdp_query_id(if_index(), 0, &id), 0);
    return id;
  }
};

TEST_F(Xdp, WhatAKilledProcessLeftIsRemoved) {
  const auto first = XdpProgram::make("near");
  ASSERT_TRUE(first) << first.error().text;
  // As DPDK's driver attaches it, and nobody has taken it over.
  std::string file = (*first)->path();
  file.replace(file.find("self"), 4, std::to_string(::getpid()));
  ASSERT_EQ(run("ip link set dev near xdp obj " + file + " sec xdp"), 0);
  ASSERT_NE(attached(), 0u);
  const auto second = XdpProgram::make("near");
  EXPECT_TRUE(second) << second.error().text;
  EXPECT_EQ(attached(), 0u);
}

TEST_F(Xdp, WhatSomebodyUsesStays) {
  {
    const auto first = XdpProgram::make("near");
    ASSERT_TRUE(first) << first.error().text;
    std::string file = (*first)->path();
    file.replace(file.find("self"), 4, std::to_string(::getpid()));
    ASSERT_EQ(run("ip link set dev near xdp obj " + file + " sec xdp"), 0);
    ASSERT_TRUE((*first)->take_over());
    const __u32 program = attached();
    ASSERT_NE(program, 0u);
    const auto second = XdpProgram::make("near");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().status, INA_ERR_REFUSED);
    EXPECT_EQ(attached(), program);
  }
  EXPECT_EQ(attached(), 0u) << "it goes with its owner";
}

TEST_F(Xdp, ProgramsOfOthersStay) {
  const bpf_insn pass[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  const Fd program(::bpf_prog_load(BPF_PROG_TYPE_XDP, "other", "BSD", pass, 2, nullptr));
  ASSERT_TRUE(program);
  ASSERT_EQ(::bpf_xdp_attach(if_index(), program.get(), 0, nullptr), 0);
  const auto refused = XdpProgram::make("near");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text.find("'ip link set dev near xdp off'"), std::string::npos)
      << refused.error().text;
  EXPECT_NE(attached(), 0u);
}

TEST_F(Xdp, QueuesAreCounted) {
  EXPECT_EQ(receive_queues_of("near"), 2u);
  ASSERT_EQ(run("ethtool -L near rx 1"), 0);
  EXPECT_EQ(receive_queues_of("near"), 1u);
  EXPECT_EQ(receive_queues_of("lo"), 1u) << "it does not tell";
}

}  // namespace
}  // namespace ina::io

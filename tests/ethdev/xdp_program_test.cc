// Which XDP programs an interface may have when an AF_XDP device is opened. Needs root.
#include "io/ethdev/xdp_program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>

#include "common/receive_queues.h"

namespace ina::io {
namespace {

int run(const std::string& command) {
  return std::system((command + " >/dev/null").c_str());
}

/// The thread has these effective capabilities alone, while this lives.
class Confined {
 public:
  explicit Confined(std::initializer_list<int> capabilities) {
    EXPECT_EQ(::syscall(SYS_capget, &header_, before_), 0);
    __user_cap_data_struct few[2] = {before_[0], before_[1]};
    few[0].effective = few[1].effective = 0;
    for (const int capability : capabilities)
      few[CAP_TO_INDEX(capability)].effective |= CAP_TO_MASK(capability);
    EXPECT_EQ(::syscall(SYS_capset, &header_, few), 0);
  }
  ~Confined() { EXPECT_EQ(::syscall(SYS_capset, &header_, before_), 0); }

 private:
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct before_[2];
};

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
  /// As DPDK's driver attaches it, which keeps the program's descriptors. Nobody removes it.
  static std::shared_ptr<bpf_object> attach(const XdpProgram& program) {
    const std::shared_ptr<bpf_object> object(
        ::bpf_object__open_file(program.path().c_str(), nullptr),
        [](bpf_object* loaded) { ::bpf_object__close(loaded); });
    if (!object || ::bpf_object__load(object.get()) != 0) {
      ADD_FAILURE() << "the kernel refuses the program";
      return nullptr;
    }
    const bpf_program* const code = ::bpf_object__next_program(object.get(), nullptr);
    EXPECT_EQ(::bpf_xdp_attach(if_index(), ::bpf_program__fd(code), 0, nullptr), 0);
    return object;
  }
  static __u32 attached() {
    __u32 id = 0;
    EXPECT_EQ(::bpf_xdp_query_id(if_index(), 0, &id), 0);
    return id;
  }
};

TEST_F(Xdp, WhatAKilledProcessLeftIsRemoved) {
  const auto first = XdpProgram::make("near");
  ASSERT_TRUE(first) << first.error().text;
  attach(**first);
  ASSERT_NE(attached(), 0u);
  const auto second = XdpProgram::make("near");
  EXPECT_TRUE(second) << second.error().text;
  EXPECT_EQ(attached(), 0u);
}

TEST_F(Xdp, WhatSomebodyUsesStays) {
  {
    const auto first = XdpProgram::make("near");
    ASSERT_TRUE(first) << first.error().text;
    const auto driver = attach(**first);
    const auto taken = (*first)->take_over();
    ASSERT_TRUE(taken) << taken.error().text;
    ASSERT_TRUE((*first)->take_all());
    const __u32 program = attached();
    ASSERT_NE(program, 0u);
    const auto second = XdpProgram::make("near");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().status, INA_ERR_REFUSED);
    EXPECT_EQ(attached(), program);
  }
  EXPECT_EQ(attached(), 0u) << "it goes with its owner";
}

TEST_F(Xdp, TakesNoMoreThanTheCapabilitiesOfTheUnit) {
  const Confined confined({CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF});
  const auto program = XdpProgram::make("near");
  ASSERT_TRUE(program) << program.error().text;
  const auto driver = attach(**program);
  const auto taken = (*program)->take_over();
  ASSERT_TRUE(taken) << taken.error().text;
  EXPECT_TRUE((*program)->take_datagrams(0x0a000001, 7584));
  EXPECT_NE(attached(), 0u);
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

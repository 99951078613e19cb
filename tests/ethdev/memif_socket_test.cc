#include "io/ethdev/memif_socket.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "control/socket.h"
#include "tests/support/temp_dir.h"

namespace ina::io {
namespace {

namespace fs = std::filesystem;

class StaleMemifSocket : public testing::Test {
 protected:
  /// A socket on which nobody listens.
  void leave_behind() {
    auto listener = control::Listener::open(path_ + ".live", 0600);
    ASSERT_TRUE(listener);
    fs::rename(path_ + ".live", path_);
  }
  std::string server(const std::string& more = "") const {
    return "net_memif0,role=server,id=0,socket=" + path_ + ",socket-abstract=no" + more;
  }
  test::TempDir folder_;
  const std::string path_ = folder_ / "memif.sock";
};

TEST_F(StaleMemifSocket, IsRemoved) {
  leave_behind();
  remove_stale_memif_socket(server());
  EXPECT_FALSE(fs::exists(path_));
  remove_stale_memif_socket(server());  // nothing there
  leave_behind();
  remove_stale_memif_socket("net_memif0,socket-abstract=no,role=server,socket=" + path_);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(StaleMemifSocket, EverythingElseStays) {
  leave_behind();
  for (const std::string& other :
       {"net_memif0,role=client,socket-abstract=no,socket=" + path_,
        "net_memif0,role=server,socket=" + path_,
        "net_memif0,role=server,socket-abstract=yes,socket=" + path_,
        "net_pcap0,role=server,socket-abstract=no,socket=" + path_, std::string("net_memif0"),
        std::string("0000:01:00.0"), std::string()}) {
    remove_stale_memif_socket(other);
    EXPECT_TRUE(fs::exists(path_)) << other;
  }
  fs::remove(path_);
  std::ofstream(path_) << "a file";
  remove_stale_memif_socket(server());
  EXPECT_TRUE(fs::exists(path_)) << "not a socket";
  fs::remove(path_);
  auto listener = control::Listener::open(path_, 0600);
  ASSERT_TRUE(listener);
  remove_stale_memif_socket(server());
  EXPECT_TRUE(fs::exists(path_)) << "somebody listens";
  const auto connection = listener->accept();
  ASSERT_TRUE(connection);
  EXPECT_FALSE(*connection) << "who listens must not notice: DPDK would abort";
}

}  // namespace
}  // namespace ina::io

// The two real sides of the shm port within one process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "io/shm/shm_port.h"
#include "transport/shm_transport.h"

namespace ina::test {

/// A worker and its lane.
class ShmSession : public testing::Test {
 protected:
  void open(const io::shm::Geometry& geometry, bool ecn = true) {
    geometry_ = geometry;
    auto results = io::shm::make_region("test-results", io::shm::result_region_bytes(geometry));
    ASSERT_TRUE(results) << results.error().text;
    results_ = std::move(*results);
    auto session = io::shm::WorkerSession::create(geometry, results_.map.data());
    ASSERT_TRUE(session) << session.error().text;
    session_ = std::move(*session);
    std::vector<Fd> events;
    for (const Fd& event : session_->wake_events) events.push_back(duplicate(event.get()));
    auto transport = client::ShmTransport::create(geometry, session_->switch_region.fd, results_.fd,
                                                  std::move(events), copier_);
    ASSERT_TRUE(transport) << transport.error().text;
    transport_ = std::move(*transport);
    auto mapped = io::shm::map_peer_region(duplicate(transport_->region_fd()),
                                           io::shm::WorkerLayout(geometry).bytes, "worker region");
    ASSERT_TRUE(mapped) << mapped.error().text;
    session_->worker_region = std::move(*mapped);
    port_ = std::make_unique<io::shm::ShmPort>(0, 4, ecn);
    const auto endpoint = port_->attach(*session_, 0, Rank{1});
    ASSERT_TRUE(endpoint) << endpoint.error().text;
    endpoint_ = *endpoint;
  }
  /// A partial sum of one int32, which is no result.
  bool send_part(int32_t element) {
    wire::Message message;
    message.type = wire::Type::kPart;
    message.bitmap = WorkerSet::of(Rank{0});
    message.dtype = DType::kInt32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    message.elements = 1;
    message.operation_elements = 1;
    std::byte payload[4];
    std::memcpy(payload, &element, 4);
    const bool sent = port_->tx(endpoint_, message, payload);
    std::memset(payload, 0xee, 4);  // the port must have copied it
    return sent;
  }

  io::shm::Geometry geometry_;
  io::shm::Region results_;
  client::BulkCopier copier_{1, 1};
  std::unique_ptr<client::ShmTransport> transport_;
  std::unique_ptr<io::shm::WorkerSession> session_;
  std::unique_ptr<io::shm::ShmPort> port_;
  io::EndpointIndex endpoint_ = 0;

 private:
  static Fd duplicate(int fd) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }
};

}  // namespace ina::test

#include "sim/ns3_network.h"

#include <ns3/boolean.h>
#include <ns3/core-module.h>
#include <ns3/drop-tail-queue.h>
#include <ns3/error-model.h>
#include <ns3/node.h>
#include <ns3/point-to-point-channel.h>
#include <ns3/point-to-point-net-device.h>
#include <ns3/queue-size.h>

#include <algorithm>
#include <cassert>
#include <vector>

namespace ina::ns3net {

namespace {

constexpr uint32_t kPppBytes = 2;  // PointToPointNetDevice adds them
constexpr uint16_t kProtocol = 0x0800;

/// What a frame carries, as the front of an ns-3 packet whose rest is there by number only. One is
/// enough for all packets: ns-3 copies its bytes at once.
class Content final : public ns3::Header {
 public:
  static ns3::TypeId GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("ina::Content").SetParent<ns3::Header>();
    return id;
  }
  ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
  uint32_t GetSerializedSize() const override { return static_cast<uint32_t>(4 + size); }
  void Serialize(ns3::Buffer::Iterator start) const override {
    start.WriteU16(static_cast<uint16_t>(size));
    start.WriteU16(marked);
    start.Write(reinterpret_cast<const uint8_t*>(bytes), static_cast<uint32_t>(size));
  }
  uint32_t Deserialize(ns3::Buffer::Iterator start) override {
    size = start.ReadU16();
    marked = start.ReadU16() != 0;
    received.resize(size);
    start.Read(reinterpret_cast<uint8_t*>(received.data()), static_cast<uint32_t>(size));
    return GetSerializedSize();
  }
  void Print(std::ostream&) const override {}

  const std::byte* bytes = nullptr;
  size_t size = 0;
  bool marked = false;
  std::vector<std::byte> received;
};

struct Direction {
  Node to = 0;
  ns3::Ptr<ns3::PointToPointNetDevice> device;
  ns3::Ptr<ns3::Queue<ns3::Packet>> queue;
  uint64_t ecn_bytes = 0;
  LinkCounters counters;
};

}  // namespace

struct Network::Impl {
  struct Port {
    ns3::Ptr<ns3::Node> node;
    Host* host = nullptr;
    std::vector<Direction> links;
    uint32_t last = 0;  ///< link used last
  };
  std::vector<Port> nodes;
  Content content;
  Content arrived;

  Direction& direction(Node from, Node to) {
    Port& port = nodes[from];
    if (port.last < port.links.size() && port.links[port.last].to == to)
      return port.links[port.last];
    // A switch's links are made in the order of its hosts.
    const auto found = std::lower_bound(port.links.begin(), port.links.end(), to,
                                        [](const Direction& d, Node node) { return d.to < node; });
    assert(found != port.links.end() && found->to == to);
    port.last = static_cast<uint32_t>(found - port.links.begin());
    return *found;
  }

  bool receive(Node node, ns3::Ptr<const ns3::Packet> packet) {
    packet->PeekHeader(arrived);
    nodes[node].host->on_frame(arrived.received.data(), arrived.size, arrived.marked);
    return true;
  }
};

Network::Network(uint64_t seed) : impl_(std::make_unique<Impl>()) {
  ns3::RngSeedManager::SetSeed(static_cast<uint32_t>(seed % 0xfffffffe) + 1);
  ns3::RngSeedManager::SetRun(1);
  ns3::ObjectFactory scheduler;
  scheduler.SetTypeId("ns3::HeapScheduler");
  ns3::Simulator::SetScheduler(scheduler);
}

Network::~Network() {
  impl_->nodes.clear();
  ns3::Simulator::Destroy();
}

Node Network::add_node(Host& host) {
  Impl::Port port;
  port.node = ns3::CreateObject<ns3::Node>();
  port.host = &host;
  impl_->nodes.push_back(std::move(port));
  return static_cast<Node>(impl_->nodes.size() - 1);
}

void Network::connect(Node a, Node b, const LinkSpec& spec) {
  const auto channel = ns3::CreateObject<ns3::PointToPointChannel>();
  channel->SetAttribute("Delay", ns3::TimeValue(ns3::NanoSeconds(spec.delay_ns)));
  Impl* const impl = impl_.get();
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    Direction direction;
    direction.to = to;
    direction.ecn_bytes = spec.ecn_bytes;
    direction.device = ns3::CreateObject<ns3::PointToPointNetDevice>();
    direction.device->SetDataRate(ns3::DataRate(spec.rate_bps));
    direction.device->SetMtu(65535);
    const auto queue = ns3::CreateObject<ns3::DropTailQueue<ns3::Packet>>();
    queue->SetMaxSize(
        ns3::QueueSize(ns3::QueueSizeUnit::BYTES, static_cast<uint32_t>(spec.queue_bytes)));
    direction.queue = queue;
    direction.device->SetQueue(queue);
    if (spec.loss > 0) {  // of what arrives at this end
      const auto losses = ns3::CreateObject<ns3::RateErrorModel>();
      losses->SetUnit(ns3::RateErrorModel::ERROR_UNIT_PACKET);
      losses->SetRate(spec.loss);
      losses->AssignStreams(static_cast<int64_t>(from) * 1'000'000 + to);
      direction.device->SetReceiveErrorModel(losses);
      direction.device->TraceConnectWithoutContext(
          "PhyRxDrop", ns3::Callback<void, ns3::Ptr<const ns3::Packet>>(
                           [impl, sender = to, receiver = from](ns3::Ptr<const ns3::Packet>) {
                             ++impl->direction(sender, receiver).counters.losses;
                           }));
    }
    impl->nodes[from].node->AddDevice(direction.device);
    direction.device->Attach(channel);
    direction.device->SetReceiveCallback(
        ns3::Callback<bool, ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet>, uint16_t,
                      const ns3::Address&>(
            [impl, node = from](ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet> packet,
                                uint16_t, const ns3::Address&) {
              return impl->receive(node, packet);
            }));
    auto& links = impl->nodes[from].links;
    links.insert(std::upper_bound(links.begin(), links.end(), to,
                                  [](Node node, const Direction& d) { return node < d.to; }),
                 std::move(direction));
  }
}

bool Network::send(Node from, Node to, const std::byte* content, size_t size,
                   uint32_t wire_bytes, bool marked) {
  Direction& direction = impl_->direction(from, to);
  LinkCounters& counters = direction.counters;
  const uint64_t queued = direction.queue->GetNBytes();
  counters.queue_peak_bytes = std::max(counters.queue_peak_bytes, queued);
  Content& header = impl_->content;
  header.bytes = content;
  header.size = size;
  const bool mark = direction.ecn_bytes != 0 && queued > direction.ecn_bytes;
  header.marked = marked || mark;
  const uint32_t own = header.GetSerializedSize() + kPppBytes;
  const auto packet = ns3::Create<ns3::Packet>(wire_bytes > own ? wire_bytes - own : 0);
  packet->AddHeader(header);
  if (!direction.device->Send(packet, direction.device->GetBroadcast(), kProtocol)) {
    ++counters.queue_drops;
    return false;
  }
  ++counters.frames;
  counters.wire_bytes += wire_bytes;
  counters.marks += mark;
  return true;
}

uint64_t Network::queued_bytes(Node from, Node to) const {
  return impl_->direction(from, to).queue->GetNBytes();
}

Nanos Network::now() const { return ns3::Simulator::Now().GetNanoSeconds(); }

void Network::schedule(Nanos at, Host& host, uint64_t argument) {
  ns3::Simulator::Schedule(ns3::NanoSeconds(std::max<Nanos>(0, at - now())), &Host::on_timer, &host,
                           argument);
}

void Network::run(Nanos until) {
  ns3::Simulator::Stop(ns3::NanoSeconds(std::max<Nanos>(0, until - now())));
  ns3::Simulator::Run();
}

void Network::stop() { ns3::Simulator::Stop(); }

LinkCounters Network::counters(Node from, Node to) const {
  return impl_->direction(from, to).counters;
}

uint64_t Network::events() const { return ns3::Simulator::GetEventCount(); }

}  // namespace ina::ns3net

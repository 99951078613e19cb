#include "sim/ns3_network.h"

#include <ns3/core-module.h>
#include <ns3/data-rate.h>
#include <ns3/drop-tail-queue.h>
#include <ns3/error-model.h>
#include <ns3/node.h>
#include <ns3/point-to-point-channel.h>
#include <ns3/point-to-point-net-device.h>
#include <ns3/queue-size.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <stdexcept>

namespace ina::ns3net {

namespace {

constexpr uint32_t kPppBytes = 2;  // PointToPointNetDevice adds them
constexpr uint16_t kProtocol = 0x0800;

/// ns-3 counts in nanoseconds unless it is told otherwise.
Nanos nanos(const ns3::Time& time) {
  return time.GetTimeStep();
}
ns3::Time in(Nanos ns) {
  return ns3::TimeStep(static_cast<uint64_t>(std::max<Nanos>(0, ns)));
}

/// The content of a frame, as the front of an ns-3 packet whose other bytes are only counted.
class Content final : public ns3::Header {
 public:
  static ns3::TypeId GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("ina::Content").SetParent<ns3::Header>();
    return id;
  }
  ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
  uint32_t GetSerializedSize() const override { return static_cast<uint32_t>(4 + bytes.size()); }
  void Serialize(ns3::Buffer::Iterator start) const override {
    start.WriteU16(static_cast<uint16_t>(bytes.size()));
    start.WriteU16(marked);
    start.Write(reinterpret_cast<const uint8_t*>(bytes.data()),
                static_cast<uint32_t>(bytes.size()));
  }
  uint32_t Deserialize(ns3::Buffer::Iterator start) override {
    bytes.resize(start.ReadU16());
    marked = start.ReadU16() != 0;
    start.Read(reinterpret_cast<uint8_t*>(bytes.data()), static_cast<uint32_t>(bytes.size()));
    return GetSerializedSize();
  }
  void Print(std::ostream&) const override {}

  Bytes bytes;
  bool marked = false;
};

struct Direction {
  Node to = 0;
  Host* receiver = nullptr;
  LinkSpec spec;
  LinkCounters counters;

  // Links::kDevices
  ns3::Ptr<ns3::PointToPointNetDevice> device;
  ns3::Ptr<ns3::Queue<ns3::Packet>> queue;

  // Links::kComputed: first in, first out, so when each frame begins and arrives is known at once.
  struct Flying {
    Nanos arrival;
    Bytes content;
    bool marked;
    bool lost;
  };
  struct QueuedFrame {
    Nanos begins;
    uint32_t wire_bytes;
  };
  struct Queue {
    std::deque<QueuedFrame> waiting;
    uint64_t waiting_bytes = 0;
    Nanos wire_free_at = 0;
    std::deque<Flying> flying;

    uint64_t bytes(Nanos now) {
      while (!waiting.empty() && waiting.front().begins <= now) {
        waiting_bytes -= waiting.front().wire_bytes;
        waiting.pop_front();
      }
      return waiting_bytes;
    }
  };
  ns3::DataRate rate;
  Pace pace;
  ns3::Ptr<ns3::UniformRandomVariable> losses;
  Queue usual, express;

  uint64_t queued(Nanos now) { return queue ? queue->GetNBytes() : usual.bytes(now); }

  bool send_packet(Bytes content, uint32_t wire_bytes, bool marked) {
    Content header;
    header.bytes = std::move(content);
    header.marked = marked;
    const uint32_t own = header.GetSerializedSize() + kPppBytes;
    const auto packet = ns3::Create<ns3::Packet>(wire_bytes > own ? wire_bytes - own : 0);
    packet->AddHeader(header);
    return device->Send(packet, device->GetBroadcast(), kProtocol);
  }

  bool launch(Bytes content, uint32_t wire_bytes, bool marked, Nanos now) {
    Queue& own = wire_bytes <= spec.express_bytes ? express : usual;
    if (own.bytes(now) + wire_bytes > spec.queue_bytes) return false;
    const Nanos begins = std::max(now, own.wire_free_at);
    const Nanos wire_ns = nanos(rate.CalculateBytesTxTime(wire_bytes));
    own.wire_free_at = pace ? pace(begins, wire_ns) : begins + wire_ns;
    if (begins > now) {
      own.waiting.push_back({begins, wire_bytes});
      own.waiting_bytes += wire_bytes;
    }
    const bool lost = losses && losses->GetValue() < spec.loss;
    own.flying.push_back({own.wire_free_at + spec.delay_ns, std::move(content), marked, lost});
    if (own.flying.size() == 1) expect(own, now);
    return true;
  }

  /// Only the next arrival is an event.
  void expect(Queue& of, Nanos now) {
    ns3::Simulator::Schedule(in(of.flying.front().arrival - now), &Direction::arrive, this, &of);
  }

  void arrive(Queue* of) {
    Flying frame = std::move(of->flying.front());
    of->flying.pop_front();
    if (!of->flying.empty()) expect(*of, frame.arrival);
    if (frame.lost)
      ++counters.losses;
    else
      receiver->on_frame(std::move(frame.content), frame.marked);
  }
};

}  // namespace

struct Network::Impl {
  struct Port {
    ns3::Ptr<ns3::Node> node;
    Host* host = nullptr;
    std::vector<std::unique_ptr<Direction>> links;  ///< in the order of their neighbours
  };
  Links links;
  std::deque<Port> nodes;  // what is in it cannot be copied, as a vector would

  Direction& direction(Node from, Node to) {
    auto& links_of = nodes[from].links;
    if (links_of.size() == 1) return *links_of[0];
    const auto found = std::lower_bound(links_of.begin(), links_of.end(), to,
                                        [](const auto& d, Node node) { return d->to < node; });
    assert(found != links_of.end() && (*found)->to == to);
    return **found;
  }

  void make_device(Direction& direction, Node from,
                   const ns3::Ptr<ns3::PointToPointChannel>& channel) {
    const LinkSpec& spec = direction.spec;
    direction.device = ns3::CreateObject<ns3::PointToPointNetDevice>();
    direction.device->SetDataRate(ns3::DataRate(spec.rate_bps));
    direction.device->SetMtu(65535);
    const auto queue = ns3::CreateObject<ns3::DropTailQueue<ns3::Packet>>();
    queue->SetMaxSize(
        ns3::QueueSize(ns3::QueueSizeUnit::BYTES, static_cast<uint32_t>(spec.queue_bytes)));
    direction.queue = queue;
    direction.device->SetQueue(queue);
    if (spec.loss > 0) {  // of frames that arrive at this end
      const auto losses = ns3::CreateObject<ns3::RateErrorModel>();
      losses->SetUnit(ns3::RateErrorModel::ERROR_UNIT_PACKET);
      losses->SetRate(spec.loss);
      losses->AssignStreams(static_cast<int64_t>(from) * 1'000'000 + direction.to);
      direction.device->SetReceiveErrorModel(losses);
      direction.device->TraceConnectWithoutContext(
          "PhyRxDrop",
          ns3::Callback<void, ns3::Ptr<const ns3::Packet>>(
              [this, sender = direction.to, receiver = from](const ns3::Ptr<const ns3::Packet>&) {
                ++this->direction(sender, receiver).counters.losses;
              }));
    }
    nodes[from].node->AddDevice(direction.device);
    direction.device->Attach(channel);
    direction.device->SetReceiveCallback(
        ns3::Callback<bool, ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet>, uint16_t,
                      const ns3::Address&>(
            [host = nodes[from].host](const ns3::Ptr<ns3::NetDevice>&,
                                      const ns3::Ptr<const ns3::Packet>& packet, uint16_t,
                                      const ns3::Address&) {
              Content content;
              packet->PeekHeader(content);
              host->on_frame(std::move(content.bytes), content.marked);
              return true;
            }));
  }
};

Network::Network(uint64_t seed, Links links) : impl_(std::make_unique<Impl>()) {
  impl_->links = links;
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
  if (impl_->links == Links::kDevices && spec.express_bytes != 0)
    throw std::invalid_argument("ns-3's own devices (--devices) have one queue only");
  const auto channel = ns3::CreateObject<ns3::PointToPointChannel>();
  channel->SetAttribute("Delay", ns3::TimeValue(in(spec.delay_ns)));
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    auto direction = std::make_unique<Direction>();
    direction->to = to;
    direction->receiver = impl_->nodes[to].host;
    direction->spec = spec;
    direction->rate = ns3::DataRate(spec.rate_bps);
    if (impl_->links == Links::kDevices) {
      impl_->make_device(*direction, from, channel);
    } else if (spec.loss > 0) {
      direction->losses = ns3::CreateObject<ns3::UniformRandomVariable>();
      direction->losses->SetStream(static_cast<int64_t>(to) * 1'000'000 + from);
    }
    auto& links = impl_->nodes[from].links;
    links.insert(std::upper_bound(links.begin(), links.end(), to,
                                  [](Node node, const auto& d) { return node < d->to; }),
                 std::move(direction));
  }
}

void Network::set_pace(Node from, Node to, Pace pace) {
  if (impl_->links == Links::kDevices)
    throw std::invalid_argument("ns-3's own devices (--devices) have links of constant rates only");
  impl_->direction(from, to).pace = std::move(pace);
}

bool Network::send(Node from, Node to, Bytes content, uint32_t wire_bytes, bool marked) {
  Direction& direction = impl_->direction(from, to);
  LinkCounters& counters = direction.counters;
  const uint64_t queued = direction.queued(now());
  counters.queue_peak_bytes = std::max(counters.queue_peak_bytes, queued);
  const bool mark = direction.spec.ecn_bytes != 0 && queued > direction.spec.ecn_bytes;
  marked |= mark;
  if (!(direction.device ? direction.send_packet(std::move(content), wire_bytes, marked)
                         : direction.launch(std::move(content), wire_bytes, marked, now()))) {
    ++counters.queue_drops;
    return false;
  }
  ++counters.frames;
  counters.wire_bytes += wire_bytes;
  counters.marks += mark;
  return true;
}

uint64_t Network::queued_bytes(Node from, Node to) {
  return impl_->direction(from, to).queued(now());
}

Nanos Network::now() const {
  return nanos(ns3::Simulator::Now());
}

void Network::schedule(Nanos at, Host& host, uint64_t argument) {
  ns3::Simulator::Schedule(in(at - now()), &Host::on_timer, &host, argument);
}

void Network::run(Nanos until) {
  ns3::Simulator::Stop(in(until - now()));
  ns3::Simulator::Run();
}

void Network::stop() {
  ns3::Simulator::Stop();
}

LinkCounters Network::counters(Node from, Node to) const {
  return impl_->direction(from, to).counters;
}

uint64_t Network::events() const {
  return ns3::Simulator::GetEventCount();
}

}  // namespace ina::ns3net

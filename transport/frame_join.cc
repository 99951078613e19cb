#include "transport/frame_join.h"

#include <array>

namespace ina::client {

namespace {

using control::Json;

std::string unfit_text(uint32_t slot_bytes, uint32_t max_slot_bytes, const std::string& url) {
  constexpr auto kAround = static_cast<uint32_t>(wire::kFrameHeaderBytes - wire::kEthernetBytes);
  return "fragments of the switch's " + std::to_string(slot_bytes) +
         "-byte slots do not fit the frames of " + url + ", which carry " +
         std::to_string(max_slot_bytes) +
         " bytes: raise the mtu between this host and the switch from " +
         std::to_string(max_slot_bytes + kAround) + " to " + std::to_string(slot_bytes + kAround) +
         " bytes ('ip link set dev INTERFACE mtu ...', on all of the way), or lower the "
         "switch's aggregator.slot_bytes";
}

}  // namespace

Result<FramePlace> frame_place_of(const Url& url) {
  const auto interface = url.number("id", 0, 0, UINT32_MAX);
  if (!interface) return tl::unexpected(interface.error());
  return FramePlace{url.get("port"), static_cast<uint32_t>(*interface)};
}

void add_frames(Json& request, const FrameTransport& frames, const FramePlace& place) {
  const wire::Address own = frames.address();
  request["transport"] = "frame";
  request["address"] = {{"mac", own.mac}, {"ip", own.ip}, {"udp_port", own.udp_port}};
  request["port"] = place.port;
  request["interface"] = place.interface;
  request["tags"] = Json::array({"siphash"});
}

wire::Address address_of(const Json& address) {
  return {address.at("mac").get<wire::MacAddress>(), address.at("ip").get<uint32_t>(),
          address.at("udp_port").get<uint16_t>()};
}

Result<void> bind_frames(const Json& joined, const std::string& url, FrameTransport& frames) {
  FrameBinding binding;
  binding.own = frames.address();
  binding.switch_address = address_of(joined.at("address"));
  binding.job = JobId{joined.at("job_id").get<uint32_t>()};
  binding.job_key = joined.at("job_key").get<uint64_t>();
  binding.lanes = joined.at("lanes").get<uint16_t>();
  binding.slot_bytes = joined.at("slot_bytes").get<uint32_t>();
  if (binding.slot_bytes > frames.max_slot_bytes())
    return fail(INA_ERR_INVALID, unfit_text(binding.slot_bytes, frames.max_slot_bytes(), url));
  if (const auto tag = joined.find("tag"); tag != joined.end()) {
    const auto key = [&](const char* name) {
      const auto words = tag->at(name).get<std::array<uint64_t, 2>>();
      return wire::SipKey{words[0], words[1]};
    };
    if (tag->at("algorithm") != "siphash")
      return fail(INA_ERR_VERSION, "the switch wants tags of a kind that version " +
                                       std::string(INA_PROJECT_VERSION) + " does not know");
    binding.tag_keys = {key("key"), key("payload_key")};
  }
  frames.bind(binding);
  return {};
}

}  // namespace ina::client

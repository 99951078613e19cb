#include "membership/frame_join.h"

namespace ina::membership {

namespace {

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

Result<FramePlace> frame_place_of(const client::Url& url) {
  const auto interface = url.number("id", 0, 0, UINT32_MAX);
  if (!interface) return tl::unexpected(interface.error());
  return FramePlace{url.get("port"), static_cast<uint32_t>(*interface)};
}

control::request::Reach reach_of(const client::FrameTransport& frames, const FramePlace& place) {
  return {.transport = control::kTransportFrame,
          .frame = control::request::FrameEnd{.address = frames.address(),
                                              .port = place.port,
                                              .interface = place.interface,
                                              .tags = {control::kTagSiphash}}};
}

Result<void> bind_frames(const control::answer::Place& place, const std::string& url,
                         client::FrameTransport& frames) {
  if (!place.address)
    return fail(INA_ERR_INTERNAL, "the switch sent no address in answer to the request to join");
  client::FrameBinding binding;
  binding.own = frames.address();
  binding.switch_address = *place.address;
  binding.job = JobId{place.job_id};
  binding.job_key = place.job_key;
  binding.lanes = static_cast<uint16_t>(place.lanes);
  binding.slot_bytes = place.slot_bytes;
  if (binding.slot_bytes > frames.max_slot_bytes())
    return fail(INA_ERR_INVALID, unfit_text(binding.slot_bytes, frames.max_slot_bytes(), url));
  if (place.tag) {
    if (place.tag->algorithm != control::kTagSiphash)
      return fail(INA_ERR_VERSION, "the switch wants tags of a kind that version " +
                                       std::string(INA_PROJECT_VERSION) + " does not know");
    binding.tag_keys = {place.tag->key, place.tag->payload_key};
  }
  frames.bind(binding);
  return {};
}

}  // namespace ina::membership

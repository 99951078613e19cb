#include "membership/attachment.h"

#include <utility>

#include "membership/shm_join.h"

namespace ina::membership {

namespace {

Result<void> check_memif(const client::Url& url, const control::Trust& trust) {
  return url.scheme == "memif" ? control::check_socket_file(url.path, trust) : Result<void>();
}

}  // namespace

bool carries_frames(const client::Url& url) {
  return url.scheme == "udp" || url.scheme == "dpdk" || url.scheme == "memif";
}

Result<std::unique_ptr<client::FrameTransport>> Attachment::open(const client::Url& url,
                                                                 const control::Trust& trust,
                                                                 Nanos timeout_ns) {
  if (auto trusted = check_memif(url, trust); !trusted) return tl::unexpected(trusted.error());
  auto opened = client::open_frame_transport(url, timeout_ns);
  if (!opened) return tl::unexpected(opened.error());
  // Its socket may have come meanwhile. Nothing was sent yet.
  if (auto trusted = check_memif(url, trust); !trusted) return tl::unexpected(trusted.error());
  auto place = frame_place_of(url);
  if (!place) return tl::unexpected(place.error());
  frame_place_ = std::move(*place);
  frames_ = opened->get();
  url_ = url.text;
  return opened;
}

Result<std::unique_ptr<client::FrameTransport>> Attachment::share(const Attachment& other) {
  auto shared = other.frames_->share();
  if (!shared) return tl::unexpected(shared.error());
  frame_place_ = other.frame_place_;
  frames_ = shared->get();
  url_ = other.url_;
  return shared;
}

Result<void> Attachment::reopen(Nanos timeout_ns) {
  return frames_ ? frames_->reopen(timeout_ns) : Result<void>();
}

control::request::Reach Attachment::reach() const {
  return frames_ ? reach_of(*frames_, frame_place_) : control::request::Reach();
}

Result<std::unique_ptr<client::ShmTransport>> Attachment::take(const control::answer::Place& place,
                                                               control::Heard& heard) {
  if (!frames_) return join_shm(place, heard, copier_);
  if (place.group)
    if (auto done = frames_->join_group(*place.group); !done) return tl::unexpected(done.error());
  if (auto bound = bind_frames(place, url_, *frames_); !bound) return tl::unexpected(bound.error());
  return nullptr;
}

std::vector<int> Attachment::descriptors(const client::ShmTransport* made) {
  return made ? std::vector{made->region_fd()} : std::vector<int>();
}

}  // namespace ina::membership

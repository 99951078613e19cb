#include "switchd/ports/shm_kind.h"

#include <fmt/format.h>

#include <utility>

#include "io/shm/layout.h"
#include "switchd/jobs/job.h"

namespace ina::switchd {

Result<Way> ShmKind::choose(const control::PeerCredentials& peer,
                            const control::request::Reach& reach) {
  if (peer.remote)
    return fail(INA_ERR_UNSUPPORTED,
                "the shm transport needs the switch's unix socket: no descriptors pass over TCP");
  if (!config_.has_shm)
    return fail(INA_ERR_UNSUPPORTED, fmt::format("this switch offers no '{}' transport", name()));
  return Way{.kind = this, .own = ShmWay{.takes_buffers = reach.result_buffers}};
}

Result<std::vector<int>> ShmKind::give(Job& job, Rank rank, Way& way,
                                       control::answer::Place& place) {
  auto made = resources_.make_session(job, rank);
  if (!made) return tl::unexpected(made.error());
  place.shm = control::answer::ShmEnd{.layout = io::shm::kLayoutVersion,
                                      .tx_depth = job.geometry.tx_depth,
                                      .rx_depth = job.geometry.rx_depth,
                                      .result_rows = job.geometry.result_rows,
                                      .side_rows = job.geometry.side_rows};
  std::vector<int> fds = {(*made)->switch_region.fd.get(), job.domain_of(rank).results.fd.get()};
  for (const Fd& event : (*made)->wake_events) fds.push_back(event.get());
  way.shm()->session = std::move(*made);
  return fds;
}

Result<void> ShmKind::attach(const Job& job, Rank rank) {
  const Way& way = job.at(rank).way;
  const LanePlace place = job.lane_place(rank);
  return lanes_.run_all(command::AttachShm{.job = place.job,
                                           .rank = place.member,
                                           .session = way.shm()->session.get(),
                                           .parks = way.parks});
}

std::string ShmKind::lost_text(const Way&, const ConductorConfig& next) const {
  return next.has_shm ? "" : "workers of it are on the port shm, which is no more";
}

}  // namespace ina::switchd

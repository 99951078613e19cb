#include "switchd/jobs/group_places.h"

#include <utility>

#include "common/clock.h"

namespace ina::switchd {

Client& GroupPlaces::make(Client& line, uint32_t channel) {
  auto& place = line.places[channel];
  left_.insert(line.connection.fd());
  if (place && place->job) return *place;
  place = std::make_unique<Client>();
  place->carrier = &line;
  place->channel = channel;
  place->peer = line.peer;
  place->tenant = line.tenant;
  place->ticket = line.ticket;
  place->since = now_ns();
  return *place;
}

void GroupPlaces::on_left(const Client& client) {
  if (client.carrier) left_.insert(client.carrier->connection.fd());
}

void GroupPlaces::remove_left() {
  for (const int fd : std::exchange(left_, {}))
    if (Client* client = connections_.find(fd))
      std::erase_if(client->places, [](const auto& entry) { return !entry.second->job; });
}

}  // namespace ina::switchd

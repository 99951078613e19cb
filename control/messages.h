// The messages of the control connection, as docs/protocol.md ("Control socket") lists them: a
// struct for each, written and parsed here for both sides.
//
// A message is written by to_text() and read by parse_request() or parse_answer(). The parsers
// accept only messages that have all required fields, with the right types. They ignore unknown
// fields. The values are the reader's to judge: a rank may be any number.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/json/json.h"
#include "common/result.h"
#include "scheduler/rules.h"
#include "wire/frame.h"
#include "wire/siphash.h"
#include "wire/types.h"

namespace ina::control {

using Json = nlohmann::json;

inline constexpr uint32_t kControlVersion = 1;
// Values of `transport`, and of `tags`.
inline constexpr const char* kTransportShm = "shm";
inline constexpr const char* kTransportFrame = "frame";
inline constexpr const char* kTagSiphash = "siphash";

/// Adds a number to runs, as messages have them: pairs of the first one and the one behind the
/// last. Numbers come in their order.
template <class Number>
void add_to_runs(std::vector<Number>& runs, Number number) {
  if (!runs.empty() && runs.back() == number)
    ++runs.back();
  else
    runs.insert(runs.end(), {number, static_cast<Number>(number + 1)});
}

/// Messages of a worker, a fallback server or an administrator.
namespace request {

/// Where the frames of a worker or server come from, and where they go to.
struct FrameEnd {
  wire::Address address;
  std::string port;               ///< name of the switch's port; empty: the switch finds it
  uint32_t interface = 0;         ///< memif: number on its socket
  std::vector<std::string> tags;  ///< kinds that it can make
  bool multicast = false;         ///< results may come by a group
  bool operator==(const FrameEnd&) const = default;
};

/// How a worker or server wants to be reached.
struct Reach {
  std::string transport = kTransportShm;  ///< any text: the switch knows which it offers
  std::optional<FrameEnd> frame;          ///< if and only if `transport` is "frame"
  bool result_buffers = true;             ///< results may lie in result buffers
  bool parks = false;                     ///< it can keep parked sums
  bool operator==(const Reach&) const = default;
};

/// The worker and the job of a request to join or to re-join.
struct Member {
  /// None: a place in a group, whose session the switch knows. One that is not kControlVersion:
  /// library, ticket and token are all else that was read.
  std::optional<uint32_t> version = std::nullopt;
  std::string library = "";
  std::string job = "";
  int64_t rank = 0;
  int64_t world_size = 0;
  std::optional<std::string> owner = std::nullopt;  ///< none: the worker's own user or tenant
  std::string ticket = "";
  std::string token = "";
  Reach reach = {};
  bool operator==(const Member&) const = default;
};

/// Settings of a worker that all of its job must share, by name.
using Settings = std::map<std::string, std::string>;

struct Join {
  static constexpr const char* kType = "join";
  Member member;
  std::optional<uint64_t> window_bytes = std::nullopt;  ///< none or 0: as granted
  Settings settings = {};
  /// Of a switch below, which is one member for all these: runs of ranks, as pairs of the first one
  /// and the one behind the last. `rank` means nothing then.
  std::vector<uint32_t> ranks = {};
  bool operator==(const Join&) const = default;
};
struct Rejoin {
  static constexpr const char* kType = "rejoin";
  Member member;
  uint32_t job_id = 0;
  uint64_t job_key = 0;
  uint64_t low = 0;  ///< fragments, as are the next ones
  uint64_t next = 0;
  uint64_t results_end = 0;
  uint64_t buffers_shared = 0;
  uint32_t splits = 0;
  /// In a tree: the fragments whose results the member has, as pairs: the first one, and the one
  /// behind the last.
  std::vector<uint64_t> held = {};
  std::vector<uint32_t> ranks = {};  ///< as of Join
  bool operator==(const Rejoin&) const = default;
};
/// The workers that have joined at a switch below, or below that: as of Join.
struct Ranks {
  static constexpr const char* kType = "ranks";
  std::vector<uint32_t> ranks;
  bool operator==(const Ranks&) const = default;
};
/// Of a switch: a worker there, or below, has said goodbye (Leave).
struct PeerLeft {
  static constexpr const char* kType = "peer_left";
  uint32_t rank = 0;
  uint32_t operations = 0;
  bool operator==(const PeerLeft&) const = default;
};
/// Of a switch: a worker there, or below, asks for groups (Split, CreateGroup).
struct PeerSplit {
  static constexpr const char* kType = "peer_split";
  uint32_t rank = 0;
  int64_t colour = 0;
  int64_t key = 0;
  uint32_t number = 0;
  bool operator==(const PeerSplit&) const = default;
};
struct PeerCreate {
  static constexpr const char* kType = "peer_create";
  uint32_t rank = 0;
  std::vector<uint32_t> ranks;
  uint64_t tag = 0;
  bool operator==(const PeerCreate&) const = default;
};
struct Attach {
  static constexpr const char* kType = "attach";
  bool operator==(const Attach&) const = default;
};
struct Register {
  static constexpr const char* kType = "register";
  uint32_t number = 0;
  uint64_t bytes = 0;
  bool operator==(const Register&) const = default;
};
struct Unregister {
  static constexpr const char* kType = "unregister";
  uint32_t number = 0;
  bool operator==(const Unregister&) const = default;
};
struct ShareResults {
  static constexpr const char* kType = "share_results";
  uint64_t bytes = 0;
  bool operator==(const ShareResults&) const = default;
};
struct FreeResults {
  static constexpr const char* kType = "free_results";
  uint32_t first_unit = 0;
  bool operator==(const FreeResults&) const = default;
};
struct Split {
  static constexpr const char* kType = "split";
  int64_t colour = 0;  ///< negative: it will be in no group
  int64_t key = 0;
  uint32_t number = 0;  ///< of its splits of the job, from 1
  bool operator==(const Split&) const = default;
};
/// The group of `ranks`, in this order, which all of them ask for and no others.
struct CreateGroup {
  static constexpr const char* kType = "create_group";
  std::vector<uint32_t> ranks;
  uint64_t tag = 0;  ///< tells the requests of a worker that are under way apart
  bool operator==(const CreateGroup&) const = default;
};
struct Leave {
  static constexpr const char* kType = "leave";
  /// Operations that the worker has called, and that are complete for it. It will call no more.
  std::optional<uint32_t> operations = std::nullopt;
  bool operator==(const Leave&) const = default;
};
struct Abort {
  static constexpr const char* kType = "abort";
  std::string text = "a worker gave up";
  std::optional<uint32_t> lost = std::nullopt;  ///< the rank that it waits for in vain
  /// Of a switch: the job has ended there, with this.
  std::optional<ina_status> status = std::nullopt;
  bool operator==(const Abort&) const = default;
};
/// Contributions that met in the sender's fallback do not belong together.
struct Mismatch {
  static constexpr const char* kType = "mismatch";
  std::string text;
  bool operator==(const Mismatch&) const = default;
};
struct Explain {
  static constexpr const char* kType = "explain";
  bool operator==(const Explain&) const = default;
};
struct Status {
  static constexpr const char* kType = "status";
  std::string token = "";
  bool operator==(const Status&) const = default;
};
/// The next packets of a job of one's own.
struct Trace {
  static constexpr const char* kType = "trace";
  std::string job;
  std::string owner = "";  ///< empty: the client's own, or the only job of that name
  uint32_t packets = 0;
  uint32_t timeout_ms = 0;  ///< returns the packets so far then
  std::string token = "";
  bool operator==(const Trace&) const = default;
};
struct Serve {
  static constexpr const char* kType = "serve";
  uint32_t version = 0;
  std::string library = "";
  bool operator==(const Serve&) const = default;
};
struct NextJob {
  static constexpr const char* kType = "next_job";
  bool operator==(const NextJob&) const = default;
};
struct JoinFallback {
  static constexpr const char* kType = "join_fallback";
  uint32_t job_id = 0;
  Reach reach = {};
  bool operator==(const JoinFallback&) const = default;
};

// ---- of administrators, over connections of their own (docs/administration.md)

/// Longest life of a ticket whose workers do not come.
inline constexpr Nanos kMaxTtlNs = 7 * 86'400 * Nanos{1'000'000'000};

/// Makes a job whose places, slots and memory are reserved until its workers come, at most for
/// `ttl_ns`. Answer: name, ticket, job_id, workers, tenant, window, slots_floor, slots_ceiling,
/// priority_max, memory_bytes, expires_in_s.
struct CreateJob {
  static constexpr const char* kType = "create_job";
  std::string name;
  uint32_t workers = 0;
  std::string tenant = "";     ///< of a token or certificate, or "uid:1000"
  uint32_t slots_floor = 0;    ///< of the whole array; 0: as configured
  uint32_t slots_ceiling = 0;  ///< of the whole array; 0: as configured
  uint8_t priority_max = 255;
  uint64_t window_bytes = 0;  ///< 0: as configured
  Nanos ttl_ns = 3600 * Nanos{1'000'000'000};
  bool operator==(const CreateJob&) const = default;
};
/// Ends a job for all its workers. Where jobs of several owners have the name, `owner` ("uid:1000",
/// or a tenant) says whose is meant, or the name does: "uid:1000/train". Answer: {}.
struct AbortJob {
  static constexpr const char* kType = "abort_job";
  std::string name;
  std::string reason = "";
  std::string owner = "";
  bool operator==(const AbortJob&) const = default;
};
/// Sends one worker away. That ends a job that has begun. Answer: {}.
struct KickWorker {
  static constexpr const char* kType = "kick_worker";
  std::string job;
  uint32_t rank = 0;
  std::string reason = "";
  std::string owner = "";  ///< as for AbortJob
  bool operator==(const KickWorker&) const = default;
};
/// No new jobs from now on; those that there are go on. Answer: as GetDrain.
struct Drain {
  static constexpr const char* kType = "drain";
  bool operator==(const Drain&) const = default;
};
/// Answer: as GetDrain.
struct Undrain {
  static constexpr const char* kType = "undrain";
  bool operator==(const Undrain&) const = default;
};
/// Answer: draining, jobs (name and owner of those that there are).
struct GetDrain {
  static constexpr const char* kType = "get_drain";
  bool operator==(const GetDrain&) const = default;
};
/// Answer: the slots that hold something, of a sample that is bounded (switchd/reports/slot_map.h).
struct GetSlots {
  static constexpr const char* kType = "get_slots";
  bool operator==(const GetSlots&) const = default;
};
/// Reads the configuration, the token file and the certificates of control.listen again, and opens
/// the log again. Where the switch must start again for it, it does, with its jobs, once this was
/// answered. Answer: changes (each key, before, after, in_place, text), restart, jobs_lost (name,
/// owner and text of those that could not go on), applied, starts (of the switch, so far), tokens
/// (how many there are).
struct Reload {
  static constexpr const char* kType = "reload";
  bool check = false;  ///< only say what would happen
  bool force = false;  ///< end the jobs that could not go on; otherwise nothing is changed then
  bool operator==(const Reload&) const = default;
};
/// Answer: policy (in force), keys (its: key, value, in_file), policies (all: name, summary), file
/// (the configuration's path; empty: none), file_error (why it cannot be read now). With an error,
/// or without a file, in_file has the switch's first values.
struct GetPolicy {
  static constexpr const char* kType = "get_policy";
  bool operator==(const GetPolicy&) const = default;
};
/// Another policy, as if the file named it. The file is not changed: the next reload or start takes
/// the file's policy again. Answer: as Reload, without tokens, and the members keys, file and
/// file_error of GetPolicy, of the policy that was set.
struct SetPolicy {
  static constexpr const char* kType = "set_policy";
  std::string name = "";  ///< empty: the one in force
  /// Further keys of the policy and their values, as in the file: "aggregator.ways", "2".
  Settings settings = {};
  bool check = false;  ///< as of Reload
  bool force = false;  ///< as of Reload
  bool operator==(const SetPolicy&) const = default;
};

/// A message of a type that this version does not know.
struct Unknown {
  std::string type;
  bool operator==(const Unknown&) const = default;
};

using Message =
    std::variant<Join, Rejoin, Ranks, PeerLeft, PeerSplit, PeerCreate, Attach, Register, Unregister,
                 ShareResults, FreeResults, Split, CreateGroup, Leave, Abort, Mismatch, Explain,
                 Status, Trace, Serve, NextJob, JoinFallback, CreateJob, AbortJob, KickWorker,
                 Drain, Undrain, GetDrain, GetSlots, Reload, GetPolicy, SetPolicy, Unknown>;

}  // namespace request

/// Messages of a switch.
namespace answer {

/// The shm port's side of a place; io::shm::Geometry says what the numbers mean.
struct ShmEnd {
  uint32_t layout = 0;
  uint32_t tx_depth = 0;
  uint32_t rx_depth = 0;
  uint32_t result_rows = 0;
  uint32_t side_rows = 0;
  bool operator==(const ShmEnd&) const = default;
};
struct Tag {
  std::string algorithm = kTagSiphash;
  wire::SipKey key;
  wire::SipKey payload_key;
  bool operator==(const Tag&) const = default;
};

/// All that a worker needs to reach the switch from a place in a job.
struct Place {
  std::string library = "";
  uint32_t job_id = 0;
  uint64_t job_key = 0;
  uint32_t epoch = 0;
  uint32_t window = 0;
  uint32_t slot_bytes = 0;
  uint32_t lanes = 0;
  std::optional<ShmEnd> shm = std::nullopt;             ///< or else `address`
  std::optional<wire::Address> address = std::nullopt;  ///< of the switch
  std::optional<wire::Address> group = std::nullopt;    ///< to which results go
  std::optional<Tag> tag = std::nullopt;                ///< frames carry tags
  bool operator==(const Place&) const = default;
};

/// Straggler help, in fragments.
struct Help {
  uint32_t in_switch = 0;
  uint32_t park_room = 0;
  bool operator==(const Help&) const = default;
};

/// To a worker.
struct Joined {
  static constexpr const char* kType = "joined";
  Place place;
  scheduler::Rules rules;
  uint32_t instance = 0;  ///< of the fallback
  uint32_t member = 0;    ///< with home tree: the worker's number at its switch
  std::optional<Help> help = std::nullopt;
  bool operator==(const Joined&) const = default;
};
/// To a fallback server; its `type` is "joined", too.
struct FallbackJoined {
  static constexpr const char* kType = "joined";
  Place place;
  std::string job;
  uint32_t workers = 0;
  uint32_t instance = 0;
  uint64_t start = 0;  ///< fragments below it are complete
  bool bind_at_once = false;
  bool operator==(const FallbackJoined&) const = default;
};
struct Waiting {
  static constexpr const char* kType = "waiting";
  std::vector<uint32_t> missing;  ///< ranks
  uint32_t more = 0;              ///< so many others are missing, too
  bool fallback_missing = false;
  bool operator==(const Waiting&) const = default;
};
struct Ready {
  static constexpr const char* kType = "ready";
  uint64_t buffers_shared = 0;  ///< after `rejoin`: the largest of all workers
  uint32_t splits = 0;          ///< after `rejoin`: the largest of all workers
  bool operator==(const Ready&) const = default;
};
struct Registered {
  static constexpr const char* kType = "registered";
  uint32_t number = 0;
  ina_status status = INA_OK;
  std::string text = "";
  bool operator==(const Registered&) const = default;
};
struct Results {
  static constexpr const char* kType = "results";
  ina_status status = INA_OK;
  std::string text = "";
  std::optional<uint32_t> first_unit = std::nullopt;  ///< none: each takes memory of its own
  uint64_t bytes = 0;
  bool operator==(const Results&) const = default;
};
struct Wake {
  static constexpr const char* kType = "wake";
  bool operator==(const Wake&) const = default;
};
/// A worker's place in a group.
struct GroupPlace {
  uint32_t job_id = 0;
  std::string job;  ///< a name for people
  uint32_t rank = 0;
  uint32_t world_size = 0;
  bool operator==(const GroupPlace&) const = default;
};
struct Split {
  static constexpr const char* kType = "split";
  using Group = GroupPlace;
  uint32_t number = 0;
  ina_status status = INA_OK;
  std::string text = "";
  std::optional<Group> group = std::nullopt;  ///< none: it is in no group
  bool operator==(const Split&) const = default;
};
struct CreateGroup {
  static constexpr const char* kType = "create_group";
  uint64_t tag = 0;
  ina_status status = INA_OK;
  std::string text = "";
  std::optional<GroupPlace> group = std::nullopt;  ///< unless `status` is an error
  bool operator==(const CreateGroup&) const = default;
};
/// To a switch: what has become of its workers' requests for groups.
struct Grouped {
  static constexpr const char* kType = "grouped";
  std::vector<uint32_t> of = {};  ///< the ranks that asked: runs, as of request::Join
  /// Of a split, or else the tag of a request for one group.
  std::optional<uint32_t> number = std::nullopt;
  uint64_t tag = 0;
  ina_status status = INA_OK;
  std::string text = "";
  /// No ranks: they are in no group. No id: all its workers are at that switch or below, which is
  /// to make it.
  uint32_t job_id = 0;
  std::string job = "";
  std::vector<uint32_t> ranks = {};  ///< in the job that was asked for it, by rank in the group
  uint32_t window = 0;
  bool operator==(const Grouped&) const = default;
};
struct Left {
  static constexpr const char* kType = "left";
  bool operator==(const Left&) const = default;
};
/// Another worker has said goodbye: request::Leave.
struct PeerLeft {
  static constexpr const char* kType = "peer_left";
  uint32_t rank = 0;
  uint32_t operations = 0;  ///< nothing that is called after these can complete
  bool operator==(const PeerLeft&) const = default;
};
struct Abort {
  static constexpr const char* kType = "abort";
  ina_status status = INA_ERR_INTERNAL;
  std::string text = "the switch gave no reason";
  bool operator==(const Abort&) const = default;
};
struct Refused {
  static constexpr const char* kType = "refused";
  ina_status status = INA_ERR_INTERNAL;
  std::string text = "the switch gave no reason";
  /// The switch has no room for the connection just now: the peer may try again.
  bool retry = false;
  bool operator==(const Refused&) const = default;
};
struct Explain {
  static constexpr const char* kType = "explain";
  std::string text;
  bool operator==(const Explain&) const = default;
};
/// Frames of this worker were dropped.
struct Dropped {
  static constexpr const char* kType = "dropped";
  std::string reason;
  uint64_t count = 0;
  std::string port;
  std::string text;
  bool operator==(const Dropped&) const = default;
};
struct Epoch {
  static constexpr const char* kType = "epoch";
  uint32_t epoch = 0;
  bool operator==(const Epoch&) const = default;
};
struct Serving {
  static constexpr const char* kType = "serving";
  std::string library;
  bool operator==(const Serving&) const = default;
};
struct Job {
  static constexpr const char* kType = "job";
  uint32_t job_id = 0;
  std::string job;
  std::string owner = "";
  bool operator==(const Job&) const = default;
};
struct Status {
  static constexpr const char* kType = "status";
  Json status = nullptr;  ///< over TCP; otherwise a memory file beside the message
  bool operator==(const Status&) const = default;
};
/// As `inactl trace --json` prints it.
struct Trace {
  static constexpr const char* kType = "trace";
  Json trace = nullptr;  ///< over TCP; otherwise a memory file beside the message
  bool operator==(const Trace&) const = default;
};
/// What an administrator asked for was done. The members of `content` are the request's.
struct Done {
  static constexpr const char* kType = "done";
  Json content = nullptr;  ///< null: a memory file beside the message, where it is long
  bool operator==(const Done&) const = default;
};
/// A message of a type that this version does not know.
struct Unknown {
  std::string type;
  bool operator==(const Unknown&) const = default;
};

using Message = std::variant<Joined, FallbackJoined, Waiting, Ready, Registered, Results, Wake,
                             Split, CreateGroup, Grouped, Left, PeerLeft, Abort, Refused, Explain,
                             Dropped, Epoch, Serving, Job, Status, Trace, Done, Unknown>;

/// A temporary refusal: the peer may try again.
inline bool is_no_room(const Message& message) {
  const auto* refused = std::get_if<Refused>(&message);
  return refused && refused->retry;
}

}  // namespace answer

/// A message and the channel that it is about. `channel`: the group's job_id; none: the job itself.
struct Request {
  std::optional<uint32_t> channel = std::nullopt;
  request::Message message = request::Unknown{};
};
struct Answer {
  std::optional<uint32_t> channel = std::nullopt;
  answer::Message message = answer::Unknown{};
};

/// One JSON object, without line ends.
std::string to_text(const request::Message& message,
                    std::optional<uint32_t> channel = std::nullopt);
std::string to_text(const answer::Message& message, std::optional<uint32_t> channel = std::nullopt);

/// INA_ERR_INVALID: the text names the message, the field and its error, as in "in 'join'
/// 'address.mac[5]' is not a number in 0..255".
Result<Request> parse_request(const Json& body);
Result<Answer> parse_answer(const Json& body);

/// The `type` of a message; INA_ERR_INVALID: it has none.
Result<std::string> type_of(const Json& body);
std::string type_of(const request::Message& message);

/// Handlers of a message's alternatives, for std::visit.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace ina::control

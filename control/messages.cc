#include "control/messages.h"

#include <array>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

namespace ina::control {

namespace {

// describe() below names the fields of each message once, for a Reader and for a Writer:
//   required   must be there
//   defaulted  may be missing, and is written all the same
//   optional   may be missing, and is written unless it has the value that a missing one stands for
//   nullable   may be missing or null, and is written as null then

class Reader {
 public:
  static constexpr bool kReads = true;
  /// `path`: of `object` in its message, with a dot behind it. `problem`: the first one.
  Reader(const Json& object, std::string path, std::string& problem)
      : object_(object), path_(std::move(path)), problem_(problem) {}

  bool has(const char* name) const { return object_.contains(name); }
  template <class T>
  void required(const char* name, T& value) {
    if (!has(name)) return fail_at(path_ + name, "missing");
    read(object_.at(name), value, path_ + name);
  }
  template <class T>
  void defaulted(const char* name, T& value) {
    if (has(name)) read(object_.at(name), value, path_ + name);
  }
  template <class T>
  void optional(const char* name, T& value, const std::type_identity_t<T>& = {}) {
    defaulted(name, value);
  }
  /// One that is there is not empty.
  void given(const char* name, std::string& value) {
    defaulted(name, value);
    if (has(name) && value.empty()) fail_at(path_ + name, "empty");
  }
  template <class T>
  void nullable(const char* name, std::optional<T>& value) {
    if (has(name) && !object_.at(name).is_null()) defaulted(name, value);
  }
  /// Microseconds that are nanoseconds of 64 bits.
  void time(const char* name, Nanos& value) {
    int64_t us = 0;
    required(name, us);
    if (us < 0 || us > std::numeric_limits<Nanos>::max() / 1000)
      return fail_at(path_ + name, "not a time in microseconds");
    value = us * 1000;
  }
  /// An enumerator by its name. `unknown`: what the name of a later version stands for.
  template <class T, size_t kCount>
  void named(const char* name, const Names<T, kCount>& names, T& value, T unknown) {
    std::string text;
    required(name, text);
    value = value_in(names, text).value_or(unknown);
  }
  /// Fields that are there together, if `first` is. True: they are.
  template <class T>
  bool part(const char* first, std::optional<T>& value) {
    if (has(first)) value.emplace();
    return value.has_value();
  }

 private:
  void fail_at(const std::string& path, const std::string& what) {
    if (problem_.empty()) problem_ = "'" + path + "' is " + what;
  }
  void read(const Json& json, bool& value, const std::string& path) {
    if (!json.is_boolean()) return fail_at(path, "not true or false");
    value = json.get<bool>();
  }
  void read(const Json& json, std::string& value, const std::string& path) {
    if (!json.is_string()) return fail_at(path, "not a text");
    value = json.get<std::string>();
  }
  void read(const Json& json, Json& value, const std::string& path) {
    if (!json.is_object()) return fail_at(path, "not an object");
    value = json;
  }
  void read(const Json& json, ina_status& value, const std::string& path) {
    int64_t number = 0;
    read_number<int64_t>(json, number, -1000, INA_IN_PROGRESS, path);
    value = static_cast<ina_status>(number);
  }
  template <std::integral T>
  void read(const Json& json, T& value, const std::string& path) {
    using Limits = std::numeric_limits<T>;
    read_number(json, value, Limits::min(), Limits::max(), path);
  }
  template <std::integral T>
  void read_number(const Json& json, T& value, T least, T most, const std::string& path) {
    // Numbers without a sign are unsigned to the parser, and others to those who make JSON.
    const auto fits = [&](auto number) {
      return std::cmp_greater_equal(number, least) && std::cmp_less_equal(number, most);
    };
    if (json.is_number_unsigned() ? !fits(json.get<uint64_t>())
                                  : !json.is_number_integer() || !fits(json.get<int64_t>()))
      return fail_at(path,
                     "not a number in " + std::to_string(least) + ".." + std::to_string(most));
    value = json.get<T>();
  }
  void read(const Json& json, request::Settings& value, const std::string& path) {
    if (!json.is_object()) return fail_at(path, "not an object");
    for (const auto& [name, setting] : json.items()) read(setting, value[name], path + "." + name);
  }
  template <class T>
  void read(const Json& json, std::vector<T>& value, const std::string& path) {
    if (!json.is_array()) return fail_at(path, "not a list");
    value.resize(json.size());
    for (size_t i = 0; i < json.size(); ++i)
      read(json[i], value[i], path + "[" + std::to_string(i) + "]");
  }
  template <class T, size_t kCount>
  void read(const Json& json, std::array<T, kCount>& value, const std::string& path) {
    if (!json.is_array() || json.size() != kCount)
      return fail_at(path, "not a list of " + std::to_string(kCount));
    for (size_t i = 0; i < kCount; ++i)
      read(json[i], value[i], path + "[" + std::to_string(i) + "]");
  }
  void read(const Json& json, wire::SipKey& value, const std::string& path) {
    std::array<uint64_t, 2> words{};
    read(json, words, path);
    value = {words[0], words[1]};
  }
  template <class T>
  void read(const Json& json, std::optional<T>& value, const std::string& path) {
    read(json, value.emplace(), path);
  }
  template <class T>
  requires(std::is_class_v<T>) void read(const Json& json, T& value, const std::string& path) {
    if (!json.is_object()) return fail_at(path, "not an object");
    Reader inside(json, path + ".", problem_);
    describe(inside, value);
  }

  const Json& object_;
  const std::string path_;
  std::string& problem_;
};

class Writer {
 public:
  static constexpr bool kReads = false;
  explicit Writer(Json& object) : object_(object) {}

  template <class T>
  void required(const char* name, T& value) {
    object_[name] = written(value);
  }
  template <class T>
  void defaulted(const char* name, T& value) {
    required(name, value);
  }
  void given(const char* name, std::string& value) { optional(name, value); }
  template <class T>
  void optional(const char* name, T& value, const std::type_identity_t<T>& absent = {}) {
    if (value != absent) required(name, value);
  }
  template <class T>
  void nullable(const char* name, std::optional<T>& value) {
    object_[name] = value ? Json(*value) : Json();
  }
  void time(const char* name, Nanos& value) { object_[name] = value / 1000; }
  template <class T, size_t kCount>
  void named(const char* name, const Names<T, kCount>& names, T& value, T) {
    object_[name] = name_in(names, value);
  }
  template <class T>
  bool part(const char*, std::optional<T>& value) {
    return value.has_value();
  }

 private:
  template <class T>
  static Json written(T& value) {
    if constexpr (std::is_constructible_v<Json, T>) {
      return Json(value);
    } else {
      Json object = Json::object();
      Writer inside(object);
      describe(inside, value);
      return object;
    }
  }
  static Json written(wire::SipKey& key) { return Json{key.k0, key.k1}; }
  template <class T>
  static Json written(std::optional<T>& value) {
    return written(*value);
  }

  Json& object_;
};

/// Messages of their type alone.
template <class Fields, class Message>
requires(std::is_empty_v<Message>) void describe(Fields&, Message&) {}

// ---- parts of several messages

template <class Fields>
void describe(Fields& fields, wire::Address& address) {
  fields.required("mac", address.mac);
  fields.required("ip", address.ip);
  fields.required("udp_port", address.udp_port);
}

template <class Fields>
void describe(Fields& fields, answer::ShmEnd& shm) {
  fields.required("layout", shm.layout);
  fields.required("tx_depth", shm.tx_depth);
  fields.required("rx_depth", shm.rx_depth);
  fields.required("result_rows", shm.result_rows);
  fields.required("side_rows", shm.side_rows);
}

template <class Fields>
void describe(Fields& fields, answer::Tag& tag) {
  fields.required("algorithm", tag.algorithm);
  fields.required("key", tag.key);
  fields.required("payload_key", tag.payload_key);
}

/// But for `transport`.
template <class Fields>
void describe_reach(Fields& fields, request::Reach& reach) {
  fields.optional("result_buffers", reach.result_buffers, true);
  fields.optional("parks", reach.parks);
  if (Fields::kReads && reach.transport == kTransportFrame) reach.frame.emplace();
  if (!reach.frame) return;
  request::FrameEnd& frame = *reach.frame;
  fields.required("address", frame.address);
  fields.defaulted("port", frame.port);
  fields.defaulted("interface", frame.interface);
  fields.optional("tags", frame.tags);
  fields.optional("multicast", frame.multicast);
}

/// False: the rest is that of another version.
template <class Fields>
bool describe_member(Fields& fields, request::Member& member) {
  fields.optional("version", member.version);
  fields.optional("library", member.library);
  // Without these a switch does not answer a stranger, not even that the version is another.
  fields.given("ticket", member.ticket);
  fields.optional("token", member.token);
  if (member.version.value_or(kControlVersion) != kControlVersion) return false;
  const bool in_group = !member.version;
  const auto known_of_group = [&](const char* name, auto& value) {
    in_group ? fields.defaulted(name, value) : fields.required(name, value);
  };
  known_of_group("job", member.job);
  known_of_group("rank", member.rank);
  known_of_group("world_size", member.world_size);
  fields.optional("owner", member.owner);
  fields.required("transport", member.reach.transport);
  describe_reach(fields, member.reach);
  return true;
}

template <class Fields>
void describe_place(Fields& fields, answer::Place& place) {
  fields.optional("library", place.library);
  fields.required("job_id", place.job_id);
  fields.required("job_key", place.job_key);
  fields.required("epoch", place.epoch);
  fields.required("window", place.window);
  fields.required("slot_bytes", place.slot_bytes);
  fields.required("lanes", place.lanes);
  fields.optional("shm", place.shm);
  fields.optional("address", place.address);
  fields.optional("group", place.group);
  fields.optional("tag", place.tag);
}

/// A worker that does not know the policy or home goes by those that take least for granted: slots
/// that jobs share, and a fallback that is elsewhere.
template <class Fields>
void describe_rules(Fields& fields, scheduler::Rules& rules) {
  fields.named("policy", scheduler::kPolicyNames, rules.policy, scheduler::PolicyKind::kFcfs);
  fields.named("home", kAllHomeNames, rules.home, Home::kSpill);
  fields.time("rto_min_us", rules.rto_min_ns);
  fields.time("rto_max_us", rules.rto_max_ns);
  fields.required("ecn", rules.ecn);
  fields.required("aggregator_window", rules.aggregator_window);
  fields.required("priority_max", rules.priority_max);
}

// ---- what workers and fallback servers say

template <class Fields>
void describe(Fields& fields, request::Join& join) {
  if (!describe_member(fields, join.member)) return;
  fields.optional("window_bytes", join.window_bytes);
  fields.optional("settings", join.settings);
  fields.optional("ranks", join.ranks);
}
template <class Fields>
void describe(Fields& fields, request::Rejoin& rejoin) {
  if (!describe_member(fields, rejoin.member)) return;
  fields.required("job_id", rejoin.job_id);
  fields.required("job_key", rejoin.job_key);
  fields.required("low", rejoin.low);
  fields.required("next", rejoin.next);
  fields.required("results_end", rejoin.results_end);
  fields.defaulted("buffers_shared", rejoin.buffers_shared);
  fields.defaulted("splits", rejoin.splits);
  fields.optional("held", rejoin.held);
  fields.optional("ranks", rejoin.ranks);
}
template <class Fields>
void describe(Fields& fields, request::Ranks& message) {
  fields.required("ranks", message.ranks);
}
template <class Fields>
void describe(Fields& fields, request::PeerSplit& split) {
  fields.required("rank", split.rank);
  fields.required("colour", split.colour);
  fields.required("key", split.key);
  fields.required("number", split.number);
}
template <class Fields>
void describe(Fields& fields, request::PeerCreate& create) {
  fields.required("rank", create.rank);
  fields.required("ranks", create.ranks);
  fields.required("tag", create.tag);
}
template <class Fields>
void describe(Fields& fields, request::PeerLeft& message) {
  fields.required("rank", message.rank);
  fields.required("operations", message.operations);
}
template <class Fields>
void describe(Fields& fields, request::Register& message) {
  fields.required("number", message.number);
  fields.required("bytes", message.bytes);
}
template <class Fields>
void describe(Fields& fields, request::Unregister& message) {
  fields.required("number", message.number);
}
template <class Fields>
void describe(Fields& fields, request::ShareResults& message) {
  fields.required("bytes", message.bytes);
}
template <class Fields>
void describe(Fields& fields, request::FreeResults& message) {
  fields.required("first_unit", message.first_unit);
}
template <class Fields>
void describe(Fields& fields, request::Split& split) {
  fields.required("colour", split.colour);
  fields.required("key", split.key);
  fields.required("number", split.number);
}
template <class Fields>
void describe(Fields& fields, request::CreateGroup& create) {
  fields.required("ranks", create.ranks);
  fields.required("tag", create.tag);
}
template <class Fields>
void describe(Fields& fields, request::Leave& leave) {
  fields.optional("operations", leave.operations);
}
template <class Fields>
void describe(Fields& fields, request::Abort& abort) {
  fields.defaulted("text", abort.text);
  fields.optional("lost", abort.lost);
  fields.optional("status", abort.status);
}
template <class Fields>
void describe(Fields& fields, request::Mismatch& mismatch) {
  fields.defaulted("text", mismatch.text);
}
template <class Fields>
void describe(Fields& fields, request::Status& status) {
  fields.optional("token", status.token);
}
template <class Fields>
void describe(Fields& fields, request::Trace& trace) {
  fields.required("job", trace.job);
  fields.optional("owner", trace.owner);
  fields.required("packets", trace.packets);
  fields.required("timeout_ms", trace.timeout_ms);
  fields.optional("token", trace.token);
}
template <class Fields>
void describe(Fields& fields, request::Serve& serve) {
  fields.required("version", serve.version);
  fields.optional("library", serve.library);
}
template <class Fields>
void describe(Fields& fields, request::JoinFallback& join) {
  fields.required("job_id", join.job_id);
  fields.optional("transport", join.reach.transport, kTransportShm);
  describe_reach(fields, join.reach);
}

// ---- what administrators say

template <class Fields>
void describe(Fields& fields, request::CreateJob& create) {
  fields.required("name", create.name);
  fields.required("workers", create.workers);
  fields.optional("tenant", create.tenant);
  fields.optional("slots_floor", create.slots_floor);
  fields.optional("slots_ceiling", create.slots_ceiling);
  fields.optional("priority_max", create.priority_max, uint8_t{255});
  fields.optional("window_bytes", create.window_bytes);
  fields.defaulted("ttl_ns", create.ttl_ns);
}
template <class Fields>
void describe(Fields& fields, request::AbortJob& abort) {
  fields.required("name", abort.name);
  fields.optional("reason", abort.reason);
  fields.optional("owner", abort.owner);
}
template <class Fields>
void describe(Fields& fields, request::KickWorker& kick) {
  fields.required("job", kick.job);
  fields.required("rank", kick.rank);
  fields.optional("reason", kick.reason);
  fields.optional("owner", kick.owner);
}
template <class Fields>
void describe(Fields& fields, request::Reload& reload) {
  fields.optional("check", reload.check);
  fields.optional("force", reload.force);
}
template <class Fields>
void describe(Fields& fields, request::SetPolicy& set) {
  fields.optional("name", set.name);
  fields.optional("settings", set.settings);
  fields.optional("check", set.check);
  fields.optional("force", set.force);
}

// ---- what switches say

template <class Fields>
void describe(Fields& fields, answer::Joined& joined) {
  describe_place(fields, joined.place);
  describe_rules(fields, joined.rules);
  fields.required("instance", joined.instance);
  fields.optional("member", joined.member);
  if (!fields.part("in_switch", joined.help)) return;
  fields.required("in_switch", joined.help->in_switch);
  fields.defaulted("park_room", joined.help->park_room);
}
template <class Fields>
void describe(Fields& fields, answer::FallbackJoined& joined) {
  describe_place(fields, joined.place);
  fields.required("job", joined.job);
  fields.required("workers", joined.workers);
  fields.required("instance", joined.instance);
  fields.required("start", joined.start);
  fields.required("bind_at_once", joined.bind_at_once);
}
template <class Fields>
void describe(Fields& fields, answer::Waiting& waiting) {
  fields.required("missing", waiting.missing);
  fields.optional("more", waiting.more);
  fields.defaulted("fallback_missing", waiting.fallback_missing);
}
template <class Fields>
void describe(Fields& fields, answer::Ready& ready) {
  fields.optional("buffers_shared", ready.buffers_shared);
  fields.optional("splits", ready.splits);
}
template <class Fields>
void describe(Fields& fields, answer::Registered& registered) {
  fields.required("number", registered.number);
  fields.required("status", registered.status);
  fields.optional("text", registered.text);
}
template <class Fields>
void describe(Fields& fields, answer::Results& results) {
  fields.required("status", results.status);
  fields.optional("text", results.text);
  if (results.status == INA_OK) fields.nullable("first_unit", results.first_unit);
  fields.optional("bytes", results.bytes);
}
template <class Fields>
void describe_group(Fields& fields, std::optional<answer::GroupPlace>& group) {
  if (!fields.part("job_id", group)) return;
  fields.required("job_id", group->job_id);
  fields.required("job", group->job);
  fields.required("rank", group->rank);
  fields.required("world_size", group->world_size);
}
template <class Fields>
void describe(Fields& fields, answer::Split& split) {
  fields.required("number", split.number);
  fields.required("status", split.status);
  fields.optional("text", split.text);
  describe_group(fields, split.group);
}
template <class Fields>
void describe(Fields& fields, answer::CreateGroup& created) {
  fields.required("tag", created.tag);
  fields.required("status", created.status);
  fields.optional("text", created.text);
  describe_group(fields, created.group);
}
template <class Fields>
void describe(Fields& fields, answer::Grouped& grouped) {
  fields.required("of", grouped.of);
  fields.optional("number", grouped.number);
  fields.optional("tag", grouped.tag);
  fields.optional("status", grouped.status, INA_OK);
  fields.optional("text", grouped.text);
  fields.optional("job_id", grouped.job_id);
  fields.optional("job", grouped.job);
  fields.optional("ranks", grouped.ranks);
  fields.optional("window", grouped.window);
}
template <class Fields>
void describe(Fields& fields, answer::PeerLeft& left) {
  fields.required("rank", left.rank);
  fields.required("operations", left.operations);
}
template <class Fields>
void describe(Fields& fields, answer::Abort& abort) {
  fields.defaulted("status", abort.status);
  fields.defaulted("text", abort.text);
}
template <class Fields>
void describe(Fields& fields, answer::Refused& refused) {
  fields.defaulted("status", refused.status);
  fields.defaulted("text", refused.text);
  fields.optional("retry", refused.retry);
}
template <class Fields>
void describe(Fields& fields, answer::Explain& explain) {
  fields.required("text", explain.text);
}
template <class Fields>
void describe(Fields& fields, answer::Dropped& dropped) {
  fields.defaulted("reason", dropped.reason);
  fields.defaulted("count", dropped.count);
  fields.defaulted("port", dropped.port);
  fields.required("text", dropped.text);
}
template <class Fields>
void describe(Fields& fields, answer::Epoch& epoch) {
  fields.required("epoch", epoch.epoch);
}
template <class Fields>
void describe(Fields& fields, answer::Serving& serving) {
  fields.defaulted("library", serving.library);
}
template <class Fields>
void describe(Fields& fields, answer::Job& job) {
  fields.required("job_id", job.job_id);
  fields.required("job", job.job);
  fields.optional("owner", job.owner);
}
template <class Fields>
void describe(Fields& fields, answer::Status& status) {
  fields.optional("status", status.status);
}
template <class Fields>
void describe(Fields& fields, answer::Trace& trace) {
  fields.optional("trace", trace.trace);
}
template <class Fields>
void describe(Fields& fields, answer::Done& done) {
  fields.optional("content", done.content);
}

// ---- all of them

template <class Message>
constexpr bool is_unknown =
    std::is_same_v<Message, request::Unknown> || std::is_same_v<Message, answer::Unknown>;

template <class Variant>
std::string text_of(Variant message, std::optional<uint32_t> channel) {
  Json object = Json::object();
  std::visit(
      [&]<class Message>(Message& alternative) {
        if constexpr (is_unknown<Message>) {
          object["type"] = alternative.type;
        } else {
          object["type"] = Message::kType;
          Writer writer(object);
          describe(writer, alternative);
        }
      },
      message);
  if (channel) object["channel"] = *channel;
  // Text of foreign origin may be no UTF-8; it is replaced, not refused.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A fallback server's place has the number of workers, a worker's the rules.
template <class Message>
bool is_of(const Json& body, const std::string& type) {
  if constexpr (is_unknown<Message>)
    return false;
  else if constexpr (std::is_same_v<Message, answer::Joined>)
    return type == Message::kType && !body.contains("workers");
  else
    return type == Message::kType;
}

template <class Message, class Variant>
bool read_as(const Json& body, const std::string& type, Variant& message, std::string& problem) {
  if (!is_of<Message>(body, type)) return false;
  if constexpr (!is_unknown<Message>) {
    Message alternative;
    Reader reader(body, "", problem);
    describe(reader, alternative);
    message = std::move(alternative);
  }
  return true;
}

template <class... Messages>
std::string read_any(const Json& body, const std::string& type,
                     std::variant<Messages...>& message) {
  std::string problem;
  const bool known = (read_as<Messages>(body, type, message, problem) || ...);
  if (!known)
    message = std::variant_alternative_t<sizeof...(Messages) - 1, std::variant<Messages...>>{type};
  return problem;
}

template <class Parsed>
Result<Parsed> parse(const Json& body) {
  const auto type = type_of(body);
  if (!type) return tl::unexpected(type.error());
  Parsed parsed;
  std::string problem = read_any(body, *type, parsed.message);
  Reader(body, "", problem).optional("channel", parsed.channel);
  if (problem.empty()) return parsed;
  return fail(INA_ERR_INVALID, "in '" + *type + "' " + problem);
}

}  // namespace

std::string to_text(const request::Message& message, std::optional<uint32_t> channel) {
  return text_of(message, channel);
}
std::string to_text(const answer::Message& message, std::optional<uint32_t> channel) {
  return text_of(message, channel);
}

Result<Request> parse_request(const Json& body) {
  return parse<Request>(body);
}
Result<Answer> parse_answer(const Json& body) {
  return parse<Answer>(body);
}

std::string type_of(const request::Message& message) {
  return std::visit(
      []<class Message>(const Message& alternative) -> std::string {
        if constexpr (is_unknown<Message>)
          return alternative.type;
        else
          return Message::kType;
      },
      message);
}

Result<std::string> type_of(const Json& body) {
  const auto type = body.find("type");
  if (!body.is_object() || type == body.end()) return fail(INA_ERR_INVALID, "'type' is missing");
  if (!type->is_string()) return fail(INA_ERR_INVALID, "'type' is not a text");
  return type->get<std::string>();
}

}  // namespace ina::control

// Control messages as text: written ones follow docs/protocol.md, and read ones have all their
// fields, of the right types.
#include "control/messages.h"

#include <gtest/gtest.h>

namespace ina::control {
namespace {

constexpr wire::Address kWorker = {{2, 0, 0, 0, 0, 1}, 0x0a000002, 9000};
constexpr wire::Address kSwitch = {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584};

request::Member member() {
  request::Member member;
  member.version = 1;
  member.library = "0.1.0";
  member.job = "train";
  member.rank = 1;
  member.world_size = 2;
  return member;
}

request::Reach frames() {
  return {.transport = kTransportFrame,
          .frame = request::FrameEnd{.address = kWorker,
                                     .port = "eth0",
                                     .interface = 3,
                                     .tags = {kTagSiphash},
                                     .multicast = true}};
}

answer::Place place() {
  return {.library = "0.1.0",
          .job_id = 5,
          .job_key = UINT64_MAX,
          .epoch = 4096,
          .window = 64,
          .slot_bytes = 1024,
          .lanes = 2};
}

answer::Joined joined() {
  answer::Joined joined;
  joined.place = place();
  joined.rules = {.policy = scheduler::PolicyKind::kEsa, .rto_min_ns = 1'000, .rto_max_ns = 2'000};
  return joined;
}

struct Golden {
  std::variant<request::Message, answer::Message> message;
  std::string text;
  std::optional<uint32_t> channel = std::nullopt;
};

/// One of each, and those whose fields depend on each other in each of their forms.
std::vector<Golden> goldens() {
  using request::Message;
  std::vector<Golden> goldens;
  const auto add = [&](auto message, std::string text,
                       std::optional<uint32_t> channel = std::nullopt) {
    goldens.push_back({std::move(message), std::move(text), channel});
  };
  const auto asks = [&](request::Message message, std::string text,
                        std::optional<uint32_t> channel = std::nullopt) {
    add(std::move(message), std::move(text), channel);
  };
  const auto says = [&](answer::Message message, std::string text,
                        std::optional<uint32_t> channel = std::nullopt) {
    add(std::move(message), std::move(text), channel);
  };

  request::Join join{.member = member(), .window_bytes = 0};
  join.member.owner = "uid:1000";
  join.member.ticket = "abc";
  join.member.reach.parks = true;
  join.settings = {{"INA_COALESCE_BYTES", "0"}, {"INA_NUMERIC", "native"}};
  asks(join, R"({"job":"train","library":"0.1.0","owner":"uid:1000","parks":true,"rank":1,)"
             R"("settings":{"INA_COALESCE_BYTES":"0","INA_NUMERIC":"native"},)"
             R"("ticket":"abc","transport":"shm","type":"join","version":1,"window_bytes":0,)"
             R"("world_size":2})");
  join = {.member = member()};
  join.member.token = "secret";
  join.member.reach = frames();
  asks(join, R"({"address":{"ip":167772162,"mac":[2,0,0,0,0,1],"udp_port":9000},"interface":3,)"
             R"("job":"train","library":"0.1.0","multicast":true,"port":"eth0","rank":1,)"
             R"("tags":["siphash"],"token":"secret","transport":"frame","type":"join","version":1,)"
             R"("world_size":2})");
  request::Join of_group;
  of_group.member.job = "train/7";
  of_group.member.world_size = 1;
  of_group.member.reach.result_buffers = false;
  asks(of_group,
       R"({"channel":7,"job":"train/7","rank":0,"result_buffers":false,"transport":"shm",)"
       R"("type":"join","world_size":1})",
       7);
  asks(request::Rejoin{.member = member(),
                       .job_id = 5,
                       .job_key = UINT64_MAX,
                       .low = 1,
                       .next = 2,
                       .results_end = 1,
                       .buffers_shared = 3,
                       .splits = 0},
       R"({"buffers_shared":3,"job":"train","job_id":5,"job_key":18446744073709551615,)"
       R"("library":"0.1.0","low":1,"next":2,"rank":1,"results_end":1,"splits":0,)"
       R"("transport":"shm","type":"rejoin","version":1,"world_size":2})");
  request::Rejoin of_tree{.member = member(), .job_id = 5, .held = {1, 3, 7, 8}, .ranks = {0, 64}};
  of_tree.member.library.clear();
  asks(of_tree, R"({"buffers_shared":0,"held":[1,3,7,8],"job":"train","job_id":5,"job_key":0,)"
                R"("low":0,"next":0,"rank":1,"ranks":[0,64],"results_end":0,"splits":0,)"
                R"("transport":"shm","type":"rejoin","version":1,"world_size":2})");
  request::Join of_switch{.member = member(), .ranks = {0, 1, 5, 7}};
  of_switch.member.library.clear();
  asks(of_switch, R"({"job":"train","rank":1,"ranks":[0,1,5,7],"transport":"shm","type":"join",)"
                  R"("version":1,"world_size":2})");
  asks(request::Ranks{{0, 2}}, R"({"ranks":[0,2],"type":"ranks"})");
  asks(request::PeerLeft{70, 5}, R"({"operations":5,"rank":70,"type":"peer_left"})");
  asks(request::PeerSplit{70, -1, 2, 3},
       R"({"channel":7,"colour":-1,"key":2,"number":3,"rank":70,"type":"peer_split"})", 7);
  asks(request::PeerCreate{70, {70, 0}, 2},
       R"({"rank":70,"ranks":[70,0],"tag":2,"type":"peer_create"})");
  asks(request::Abort{.text = "why", .status = INA_OK},
       R"({"status":0,"text":"why","type":"abort"})");
  asks(request::Attach{}, R"({"type":"attach"})");
  asks(request::Register{1, 4096}, R"({"bytes":4096,"number":1,"type":"register"})");
  asks(request::Unregister{1}, R"({"number":1,"type":"unregister"})");
  asks(request::ShareResults{4096}, R"({"bytes":4096,"type":"share_results"})");
  asks(request::FreeResults{8}, R"({"first_unit":8,"type":"free_results"})");
  asks(request::Split{-1, INT64_MIN, 2},
       R"({"colour":-1,"key":-9223372036854775808,"number":2,"type":"split"})");
  asks(request::CreateGroup{{2, 0}, UINT64_MAX},
       R"({"ranks":[2,0],"tag":18446744073709551615,"type":"create_group"})");
  asks(request::Leave{}, R"({"channel":9,"type":"leave"})", 9);
  asks(request::Abort{"why", 3}, R"({"lost":3,"text":"why","type":"abort"})");
  asks(request::Leave{7}, R"({"operations":7,"type":"leave"})");
  asks(request::Abort{"why"}, R"({"text":"why","type":"abort"})");
  asks(request::Mismatch{"why"}, R"({"text":"why","type":"mismatch"})");
  asks(request::Explain{}, R"({"type":"explain"})");
  asks(request::Status{}, R"({"type":"status"})");
  asks(request::Status{"secret"}, R"({"token":"secret","type":"status"})");
  asks(request::Trace{"train", "", 32, 10'000},
       R"({"job":"train","packets":32,"timeout_ms":10000,"type":"trace"})");
  asks(
      request::Trace{"train", "red", 1, 1, "secret"},
      R"({"job":"train","owner":"red","packets":1,"timeout_ms":1,"token":"secret","type":"trace"})");
  asks(request::Serve{1, "0.1.0"}, R"({"library":"0.1.0","type":"serve","version":1})");
  asks(request::NextJob{}, R"({"type":"next_job"})");
  asks(request::JoinFallback{.job_id = 5}, R"({"job_id":5,"type":"join_fallback"})");
  request::JoinFallback server{.job_id = 5, .reach = frames()};
  server.reach.frame->multicast = false;
  asks(
      server,
      R"({"address":{"ip":167772162,"mac":[2,0,0,0,0,1],"udp_port":9000},"interface":3,)"
      R"("job_id":5,"port":"eth0","tags":["siphash"],"transport":"frame","type":"join_fallback"})");
  asks(request::Unknown{"dance"}, R"({"type":"dance"})");

  answer::Joined by_shm = joined();
  by_shm.place.shm = answer::ShmEnd{4, 1, 2, 3, 4};
  by_shm.help = answer::Help{.in_switch = 8, .park_room = 0};
  says(by_shm,
       R"({"aggregator_window":true,"ecn":true,"epoch":4096,"home":"workers","in_switch":8,)"
       R"("instance":0,"job_id":5,"job_key":18446744073709551615,"lanes":2,"library":"0.1.0",)"
       R"("park_room":0,"policy":"esa","priority_max":255,"rto_max_us":2,"rto_min_us":1,)"
       R"("shm":{"layout":4,"result_rows":3,"rx_depth":2,"side_rows":4,"tx_depth":1},)"
       R"("slot_bytes":1024,"type":"joined","window":64})");
  answer::Joined by_frames = joined();
  by_frames.place.address = kSwitch;
  by_frames.place.group = kSwitch;
  by_frames.place.tag = answer::Tag{.key = {1, UINT64_MAX}, .payload_key = {3, 4}};
  says(by_frames,
       R"({"address":{"ip":167772161,"mac":[2,0,0,0,0,9],"udp_port":7584},)"
       R"("aggregator_window":true,"ecn":true,"epoch":4096,)"
       R"("group":{"ip":167772161,"mac":[2,0,0,0,0,9],"udp_port":7584},"home":"workers",)"
       R"("instance":0,"job_id":5,"job_key":18446744073709551615,"lanes":2,"library":"0.1.0",)"
       R"("policy":"esa","priority_max":255,"rto_max_us":2,"rto_min_us":1,"slot_bytes":1024,)"
       R"("tag":{"algorithm":"siphash","key":[1,18446744073709551615],"payload_key":[3,4]},)"
       R"("type":"joined","window":64})");
  answer::Joined in_tree = joined();
  in_tree.place.library.clear();
  in_tree.rules.home = Home::kTree;
  in_tree.member = 5;
  says(in_tree, R"({"aggregator_window":true,"ecn":true,"epoch":4096,"home":"tree","instance":0,)"
                R"("job_id":5,"job_key":18446744073709551615,"lanes":2,"member":5,"policy":"esa",)"
                R"("priority_max":255,"rto_max_us":2,"rto_min_us":1,"slot_bytes":1024,)"
                R"("type":"joined","window":64})");
  answer::FallbackJoined serving{.place = place(),
                                 .job = "train",
                                 .workers = 2,
                                 .instance = 4096,
                                 .start = 7,
                                 .bind_at_once = true};
  serving.place.library.clear();
  serving.place.shm = answer::ShmEnd{4, 1, 2, 3, 4};
  says(serving, R"({"bind_at_once":true,"epoch":4096,"instance":4096,"job":"train","job_id":5,)"
                R"("job_key":18446744073709551615,"lanes":2,)"
                R"("shm":{"layout":4,"result_rows":3,"rx_depth":2,"side_rows":4,"tx_depth":1},)"
                R"("slot_bytes":1024,"start":7,"type":"joined","window":64,"workers":2})");
  says(answer::Waiting{.missing = {0, 63}},
       R"({"fallback_missing":false,"missing":[0,63],"type":"waiting"})");
  says(answer::Waiting{.missing = {}, .fallback_missing = true},
       R"({"fallback_missing":true,"missing":[],"type":"waiting"})");
  says(answer::Waiting{.missing = {1}, .more = 4000},
       R"({"fallback_missing":false,"missing":[1],"more":4000,"type":"waiting"})");
  says(answer::Ready{}, R"({"channel":7,"type":"ready"})", 7);
  says(answer::Ready{3, 1}, R"({"buffers_shared":3,"splits":1,"type":"ready"})");
  says(answer::Registered{1}, R"({"number":1,"status":0,"type":"registered"})");
  says(answer::Registered{1, INA_ERR_INVALID, "no"}, R"({"number":1,"status":)" +
                                                         std::to_string(INA_ERR_INVALID) +
                                                         R"(,"text":"no","type":"registered"})");
  says(answer::Results{.first_unit = 8, .bytes = 4096},
       R"({"bytes":4096,"first_unit":8,"status":0,"type":"results"})");
  says(answer::Results{}, R"({"first_unit":null,"status":0,"type":"results"})");
  says(answer::Results{.status = INA_ERR_INVALID, .text = "no"},
       R"({"status":)" + std::to_string(INA_ERR_INVALID) + R"(,"text":"no","type":"results"})");
  says(answer::Wake{}, R"({"type":"wake"})");
  says(answer::Split{.number = 2}, R"({"number":2,"status":0,"type":"split"})");
  says(answer::Split{.number = 2, .group = answer::Split::Group{7, "train/7", 0, 1}},
       R"({"job":"train/7","job_id":7,"number":2,"rank":0,"status":0,"type":"split",)"
       R"("world_size":1})");
  says(answer::CreateGroup{.tag = 3, .status = INA_ERR_REFUSED, .text = "no"},
       R"({"status":)" + std::to_string(INA_ERR_REFUSED) +
           R"(,"tag":3,"text":"no","type":"create_group"})");
  says(answer::CreateGroup{.tag = 3, .group = answer::GroupPlace{7, "train/7", 0, 1}},
       R"({"job":"train/7","job_id":7,"rank":0,"status":0,"tag":3,"type":"create_group",)"
       R"("world_size":1})");
  says(answer::Grouped{.of = {0, 2},
                       .number = 1,
                       .job_id = 7,
                       .job = "train/7",
                       .ranks = {1, 64, 0},
                       .window = 128},
       R"({"job":"train/7","job_id":7,"number":1,"of":[0,2],"ranks":[1,64,0],"type":"grouped",)"
       R"("window":128})");
  says(answer::Grouped{.of = {0, 1}, .tag = 3, .status = INA_ERR_REFUSED, .text = "no"},
       R"({"of":[0,1],"status":)" + std::to_string(INA_ERR_REFUSED) +
           R"(,"tag":3,"text":"no","type":"grouped"})");
  says(answer::Left{}, R"({"type":"left"})");
  says(answer::PeerLeft{1, 5}, R"({"operations":5,"rank":1,"type":"peer_left"})");
  says(answer::Abort{INA_OK, "why"}, R"({"status":0,"text":"why","type":"abort"})");
  says(answer::Refused{INA_OK, "why"}, R"({"status":0,"text":"why","type":"refused"})");
  says(answer::Refused{INA_OK, "why", true},
       R"({"retry":true,"status":0,"text":"why","type":"refused"})");
  says(answer::Explain{"so"}, R"({"text":"so","type":"explain"})");
  says(answer::Dropped{"crc", 5, "eth0", "so"},
       R"({"count":5,"port":"eth0","reason":"crc","text":"so","type":"dropped"})");
  says(answer::Epoch{5}, R"({"epoch":5,"type":"epoch"})");
  says(answer::Serving{"0.1.0"}, R"({"library":"0.1.0","type":"serving"})");
  says(answer::Job{5, "train"}, R"({"job":"train","job_id":5,"type":"job"})");
  says(answer::Job{5, "train", "red"}, R"({"job":"train","job_id":5,"owner":"red","type":"job"})");
  says(answer::Status{}, R"({"type":"status"})");
  says(answer::Status{{{"jobs", Json::array()}}}, R"({"status":{"jobs":[]},"type":"status"})");
  says(answer::Trace{}, R"({"type":"trace"})");
  says(answer::Trace{{{"packets", Json::array()}}}, R"({"trace":{"packets":[]},"type":"trace"})");
  says(answer::Unknown{"dance"}, R"({"type":"dance"})");
  return goldens;
}

TEST(Messages, AreWrittenAsTheProtocolSays) {
  for (const Golden& golden : goldens())
    EXPECT_EQ(
        std::visit([&](const auto& side) { return to_text(side, golden.channel); }, golden.message),
        golden.text);
}

TEST(Messages, AreReadAsTheyWereWritten) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.text);
    const Json body = Json::parse(golden.text);
    if (const auto* asked = std::get_if<request::Message>(&golden.message)) {
      const auto request = parse_request(body);
      ASSERT_TRUE(request) << request.error().text;
      EXPECT_EQ(request->message, *asked);
      EXPECT_EQ(request->channel, golden.channel);
    } else {
      const auto answer = parse_answer(body);
      ASSERT_TRUE(answer) << answer.error().text;
      EXPECT_EQ(answer->message, std::get<answer::Message>(golden.message));
      EXPECT_EQ(answer->channel, golden.channel);
    }
  }
}

/// The text of the error; empty: there is none.
std::string problem_of(bool asked, const Json& body) {
  if (asked) {
    const auto request = parse_request(body);
    return request ? "" : request.error().text;
  }
  const auto answer = parse_answer(body);
  return answer ? "" : answer.error().text;
}

/// Calls `change(object, path, key)` for every field of `body`, at any depth.
template <class Change>
void for_each_field(Json& body, const std::string& path, Change&& change) {
  const Json fields = body;
  for (const auto& [key, value] : fields.items()) {
    change(body, path + key, key);
    if (value.is_object() && key != "status" && key != "trace")
      for_each_field(body[key], path + key + ".", change);
  }
}

TEST(Messages, FieldsOfAnyOtherTypeAreNamed) {
  const std::vector<Json> others = {-7,      1.5,      1e300, true,         "text",
                                    nullptr, {1, "x"}, {-1},  {{"mac", 5}}, UINT64_MAX};
  for (const Golden& golden : goldens()) {
    const bool asked = golden.message.index() == 0;
    Json whole = Json::parse(golden.text);
    for_each_field(whole, "", [&](Json& object, const std::string& path, const std::string& key) {
      // `transport` may be any text, and says which fields there are.
      if (path == "transport") return;
      const Json before = object[key];
      int found = 0;
      for (const Json& other : others) {
        object[key] = other;
        const std::string problem = problem_of(asked, whole);
        if (problem.empty()) continue;
        ++found;
        EXPECT_NE(problem.find("'" + path), std::string::npos) << whole << ": " << problem;
      }
      object[key] = before;
      EXPECT_GE(found, static_cast<int>(others.size()) - 3) << path << " of " << whole;
    });
  }
}

TEST(Messages, WithoutAFieldTheyAreReadOrTheFieldIsNamed) {
  for (const Golden& golden : goldens()) {
    const bool asked = golden.message.index() == 0;
    Json whole = Json::parse(golden.text);
    for_each_field(whole, "", [&](Json& object, const std::string& path, const std::string& key) {
      if (path == "workers") return;  // without it the message is a worker's
      const Json before = object;
      object.erase(key);
      const std::string problem = problem_of(asked, whole);
      object = before;
      if (!problem.empty()) {
        EXPECT_NE(problem.find("'" + path + "' is missing"), std::string::npos) << problem;
      }
    });
  }
}

struct Bad {
  bool asked;
  const char* text;
  const char* problem;
};

TEST(Messages, ErrorsSayWhere) {
  const Bad bad[] = {
      {true, R"({"type":"join","version":1,"rank":0,"world_size":1,"transport":"shm"})",
       "in 'join' 'job' is missing"},
      {true, R"({"type":"join","transport":"frame"})", "in 'join' 'address' is missing"},
      {true,
       R"({"type":"join","transport":"frame","address":{"mac":[1,2,3,4,5,256],"ip":1,"udp_port":1}})",
       "in 'join' 'address.mac[5]' is not a number in 0..255"},
      {true, R"({"type":"join","transport":"frame","address":{"mac":[1,2,3],"ip":1,"udp_port":1}})",
       "in 'join' 'address.mac' is not a list of 6"},
      {true, R"({"type":"leave","channel":-1})",
       "in 'leave' 'channel' is not a number in 0..4294967295"},
      {true, R"({"type":"register","number":1})", "in 'register' 'bytes' is missing"},
      {false, R"({"type":"waiting","missing":[1,"2"]})",
       "in 'waiting' 'missing[1]' is not a number in 0..4294967295"},
      {false, R"({"type":"refused","status":2})",
       "in 'refused' 'status' is not a number in -1000..1"},
      {false, R"({"type":"refused","status":-1001})",
       "in 'refused' 'status' is not a number in -1000..1"},
      {true, R"({"type":7})", "'type' is not a text"},
      {true, R"({"text":"x"})", "'type' is missing"},
      {false, R"({})", "'type' is missing"},
      {false, "[]", "'type' is missing"},
      {false, "5", "'type' is missing"},
      {false, "null", "'type' is missing"}};
  for (const Bad& one : bad)
    EXPECT_EQ(problem_of(one.asked, Json::parse(one.text)), one.problem) << one.text;
  Json joined = Json::parse(to_text(answer::Message(ina::control::joined())));
  joined["rto_max_us"] = INT64_MAX;
  EXPECT_EQ(problem_of(false, joined), "in 'joined' 'rto_max_us' is not a time in microseconds");
}

TEST(Messages, OfAnotherVersionOnlyWhoAsksIsRead) {
  const auto request = parse_request(
      Json::parse(R"({"type":"join","version":2,"library":"9","token":"secret","rank":"first"})"));
  ASSERT_TRUE(request) << request.error().text;
  const auto& join = std::get<request::Join>(request->message);
  EXPECT_EQ(join.member.version, 2u);
  EXPECT_EQ(join.member.library, "9");
  EXPECT_EQ(join.member.token, "secret") << "or a stranger would not hear of the version";
}

TEST(Messages, FieldsThatAreNotKnownAreNotLookedAt) {
  const auto answer = parse_answer(Json::parse(R"({"type":"left","unknown":{"of":["any",1.5]}})"));
  ASSERT_TRUE(answer) << answer.error().text;
  EXPECT_TRUE(std::holds_alternative<answer::Left>(answer->message));
}

TEST(Messages, TextThatIsNoUtf8IsReplaced) {
  const std::string text = to_text(request::Message(request::Abort{"bad \xff byte"}));
  EXPECT_FALSE(Json::parse(text, nullptr, false).is_discarded()) << text;
}

}  // namespace
}  // namespace ina::control

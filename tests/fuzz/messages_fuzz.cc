// Control messages as arbitrary text: reading it either names the error or gives a message, and the
// message is the same after it is written and read again.
#include <string_view>

#include "control/messages.h"
#include "tests/fuzz/check.h"

namespace {

using namespace ina::control;

template <class Parsed>
void check(const ina::Result<Parsed>& parsed, ina::Result<Parsed> (*parse)(const Json&)) {
  if (!parsed) {
    INA_FUZZ_CHECK(!parsed.error().text.empty());
    return;
  }
  const auto again = parse(Json::parse(to_text(parsed->message, parsed->channel)));
  INA_FUZZ_CHECK(again && again->message == parsed->message && again->channel == parsed->channel);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Json body = Json::parse(data, data + size, nullptr, false);
  if (body.is_discarded()) return 0;
  check(parse_request(body), parse_request);
  check(parse_answer(body), parse_answer);
  return 0;
}

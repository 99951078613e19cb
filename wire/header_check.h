// validate() for one sender after another message of the same.
#pragma once

#include "wire/same_fields.h"

namespace ina::wire {

/// Remembers the last contribution of a sender that was valid: the next one has mostly the same
/// header but for its number, and needs to be compared only.
class HeaderCheck {
 public:
  /// True if the message is valid, as the last one was. Of others validate() must say.
  bool repeats(const Message& message, uint32_t payload_bytes) const {
    return payload_bytes == payload_bytes_ && same_fields(message, valid_, kChecked);
  }
  /// As wire::validate(), for messages that all have the same `slot_bytes`.
  std::optional<DropReason> validate(const Message& message, uint32_t payload_bytes,
                                     uint32_t slot_bytes) {
    if (repeats(message, payload_bytes)) [[likely]]
      return std::nullopt;
    const auto reason = wire::validate(message, payload_bytes, slot_bytes);
    if (!reason && message.type == Type::kGrad) {
      valid_ = message;
      payload_bytes_ = payload_bytes;
    }
    return reason;
  }

 private:
  /// Ones in the fields that decide whether a contribution is valid.
  static constexpr auto kChecked = [] {
    Message checked;
    checked.operation_elements = UINT64_MAX;
    checked.elements = UINT16_MAX;
    checked.flags = kFlagBare;
    checked.type = Type{0xff};
    checked.dtype = DType{0xff};
    checked.op = Op{0xff};
    checked.collective = Collective{0xff};
    checked.rank = Rank{0x7f};
    checked.origin = Origin{7};
    checked.phase = Phase{7};
    checked.receiver = 0x1fff;
    return checked;
  }();
  /// Valid without a payload.
  static constexpr auto kQuestion = [] {
    Message question;
    question.type = Type::kQuery;
    return question;
  }();

  Message valid_ = kQuestion;
  uint32_t payload_bytes_ = 0;
};

}  // namespace ina::wire

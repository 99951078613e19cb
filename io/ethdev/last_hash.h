// The hash of a result's payload, which goes to all workers of a job: it is made once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/siphash.h"

namespace ina::io {

/// Knows a payload by its place, so forget() must be called before another can lie there.
class LastHash {
 public:
  uint64_t of(const wire::SipKey& key, std::span<const std::byte> payload) {
    if (payload_.data() != payload.data() || payload_.size() != payload.size() || key_ != key) {
      key_ = key;
      payload_ = payload;
      hash_ = wire::siphash(key, payload);
    }
    return hash_;
  }
  void forget() { payload_ = {}; }

 private:
  wire::SipKey key_{};
  std::span<const std::byte> payload_;  ///< empty: none
  uint64_t hash_ = 0;
};

}  // namespace ina::io

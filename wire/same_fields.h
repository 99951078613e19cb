// Messages compared in some of their fields at once.
#pragma once

#include <emmintrin.h>

#include "wire/message.h"

namespace ina::wire {

/// True if two messages agree in all bits that are set in `fields`.
inline bool same_fields(const Message& a, const Message& b, const Message& fields) {
  const auto* const left = reinterpret_cast<const __m128i*>(&a);
  const auto* const right = reinterpret_cast<const __m128i*>(&b);
  const auto* const mask = reinterpret_cast<const __m128i*>(&fields);
  __m128i differ = _mm_setzero_si128();
  for (size_t i = 0; i < sizeof(Message) / sizeof(__m128i); ++i)
    differ = _mm_or_si128(
        differ, _mm_and_si128(_mm_xor_si128(_mm_loadu_si128(left + i), _mm_loadu_si128(right + i)),
                              _mm_loadu_si128(mask + i)));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(differ, _mm_setzero_si128())) == 0xffff;
}

}  // namespace ina::wire

// The sanitizer that this is compiled with, for every compiler.
#pragma once

// INA_UNDER_TSAN: ThreadSanitizer. INA_SLOW_BUILD: one that makes everything many times slower.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define INA_UNDER_TSAN
#endif
#if __has_feature(address_sanitizer)
#define INA_SLOW_BUILD
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define INA_UNDER_TSAN
#endif
#if defined(INA_UNDER_TSAN) || defined(__SANITIZE_ADDRESS__)
#define INA_SLOW_BUILD
#endif

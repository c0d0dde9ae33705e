// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

/// What a test asks about the run that it is part of.
namespace minitaw::test {
/// Under a sanitizer, memory grows threefold and time tenfold: tests then take fewer shapes or
/// rounds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// Seed of a test's random numbers: the same each time, so that a verdict belongs to the commit it
/// judged. MINITAW_SEED=N takes another, MINITAW_SEED=random a new one each time (print it: a
/// failure needs it).
inline std::uint32_t seed() {
  const char* text = std::getenv("MINITAW_SEED");
  if (text == nullptr)
    return 20111741;
  const std::string_view given(text);
  std::uint32_t number = 0;
  std::from_chars(given.data(), given.data() + given.size(), number);
  return number;
}
}  // namespace minitaw::test

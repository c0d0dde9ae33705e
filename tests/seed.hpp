// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace minitaw::test {
/// Seed of a test's random numbers: the same each time, so that a verdict belongs to the commit it judged.
/// MINITAW_SEED=N takes another, MINITAW_SEED=random a new one each time (print it: a failure needs it).
inline std::uint32_t seed() {
  const char* text = std::getenv("MINITAW_SEED");
  if (text == nullptr) return 20111741;
  const std::string_view given(text);
  std::uint32_t number = 0;
  std::from_chars(given.data(), given.data() + given.size(), number);
  return number;
}
}  // namespace minitaw::test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "case/case.hpp"

/// What makes a case fit that does not.
namespace minitaw::app {
/// Settings with which a case fits a device.
struct Remedy {
  std::vector<std::pair<std::string, std::string>> settings;  ///< key and value, as --set has them
  std::uint64_t total = 0;  ///< bytes of the rank that needs most, with libraries
};

/// Returns, of each key that may help, the least change with which `c` fits `available` bytes; if
/// none does alone, one remedy of several keys; nothing if they do not suffice together. Sequences
/// of a step stay, but grow with the ranks. Every remedy was planned, which takes seconds where a
/// program has thousands of ranks.
[[nodiscard]] std::vector<Remedy> remedies_of(const Case& c, std::uint64_t available);
}  // namespace minitaw::app

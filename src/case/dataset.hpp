// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>
#include "base/table.hpp"

namespace minitaw {
using Values =
    std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;
/// Type of one element.
[[nodiscard]] Values one(const Cell& cell);

/// An array of a result, and what its reader has to know (docs/results.md).
struct Dataset {
  std::string path;
  std::string units{};  ///< left out for a case, where layout.txt has them
  std::string axes{};   ///< "timed step, rank"; empty: a scalar
  Values values;        ///< row-major
  std::vector<std::size_t> shape = {};
  std::vector<std::string> labels = {};  ///< names along the last axis
  std::vector<std::string> codes = {};   ///< what the values 0, 1, ... mean
};
}  // namespace minitaw

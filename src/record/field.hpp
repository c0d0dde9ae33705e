// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <variant>
#include <vector>
#include "base/table.hpp"

namespace minitaw::record {
/// A dataset of a file, as its attributes and docs/results.md describe it.
struct Field {
  std::string name;                      ///< its path in the group of the run or session
  std::string units;                     ///< "1": a number without unit, "text"
  std::string axes;                      ///< "timed step, rank"; empty: a scalar
  std::string doc;                       ///< a sentence
  std::vector<std::string> labels = {};  ///< names along the last axis
  std::vector<std::string> codes = {};   ///< what the values 0, 1, ... mean
};

using Values =
    std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

/// What a dataset holds.
struct Elements {
  Values values;                        ///< row-major
  std::vector<std::size_t> shape = {};  ///< empty: a scalar
};
}  // namespace minitaw::record

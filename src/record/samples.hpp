#pragma once

#include <string>
#include <vector>

#include "record/read_case.hpp"

namespace minitaw::record {

/// Every sample in long form, for programs that do their own statistics: a row for each case, repetition,
/// step and rank, with the settings of the case, the seconds, and what the device said. Titles as in
/// to_csv().
[[nodiscard]] std::string samples_to_csv(const std::vector<StoredCase>& cases);
/// A list of objects with the same names; what does not exist is null.
[[nodiscard]] std::string samples_to_json(const std::vector<StoredCase>& cases);

}  // namespace minitaw::record

#pragma once

#include <string>
#include <vector>

#include "record/columns.hpp"

namespace minitaw::record {

/// What a column is called in CSV and JSON: "median_s [s]"; without units where it is a plain number or text.
[[nodiscard]] std::string export_title(const std::string& name, const std::string& units);

/// A table for other programs, with a header; what does not exist (NaN) is empty. RFC 4180.
[[nodiscard]] std::string cells_to_csv(const std::vector<std::string>& titles,
                                       const std::vector<std::vector<Cell>>& rows);
/// The same as a list of objects; what does not exist is null.
[[nodiscard]] std::string cells_to_json(const std::vector<std::string>& titles,
                                        const std::vector<std::vector<Cell>>& rows);

}  // namespace minitaw::record

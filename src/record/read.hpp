#pragma once

#include <string>
#include <vector>

#include "record/image.hpp"

namespace minitaw::record {

/// The summary of an open file; `path` is for messages. Throws InputError if the file is damaged.
[[nodiscard]] std::vector<Row> read_summary(const Image& image, const std::string& path);

/// How many sessions have written to the file.
[[nodiscard]] int count_sessions(const Image& image);

}  // namespace minitaw::record

#pragma once

#include <span>
#include <string>

#include "trace/timeline.hpp"

namespace minitaw::app {

/// Throws InputError unless the name ends in .svg or .json.
void require_timeline_name(const std::string& path);

/// Writes timelines under a common axis: a drawing (.svg) or a Chrome trace (.json). Throws InputError for
/// another ending, or where the file cannot be written.
void write_timelines(const std::string& path, std::span<const trace::Timeline> timelines);

}  // namespace minitaw::app

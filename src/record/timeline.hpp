#pragma once

#include <string>
#include <vector>

#include "record/hdf5.hpp"
#include "trace/timeline.hpp"

namespace minitaw::record {

/// Writes the group `timeline` of a case: a column per field of an event, in the order of the events.
void write_timeline(hid_t group, const trace::Timeline& timeline);

/// Numbers of the cases of a result file that have one. Throws InputError if the file is none or damaged.
[[nodiscard]] std::vector<int> cases_with_timeline(const std::string& path);

/// The timeline of one case of a result file, with a title that says which case it is. Throws InputError if
/// the file has no such case, the case no timeline, or the file is damaged.
[[nodiscard]] trace::Timeline read_timeline(const std::string& path, int number);

}  // namespace minitaw::record

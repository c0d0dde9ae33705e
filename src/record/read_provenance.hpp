#pragma once

#include <string>
#include <vector>

#include "record/image.hpp"
#include "record/provenance.hpp"

namespace minitaw::record {

/// What the sessions of a file say of where their cases come from, in order; a case names its session by
/// number. What an older schema does not hold is empty; nodes are then told apart by host names. `path` is
/// for messages. Throws InputError if the file is damaged.
[[nodiscard]] std::vector<Provenance> read_sessions(const Image& image, const std::string& path);

}  // namespace minitaw::record

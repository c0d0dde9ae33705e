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

/// The git hash that each session was built from. Throws as read_sessions() does.
[[nodiscard]] std::vector<std::string> read_git_hashes(const Image& image, const std::string& path);

/// The lines that each session has printed; none in files before schema 4. Throws as read_sessions() does.
[[nodiscard]] std::vector<std::vector<std::string>> read_logs(const Image& image, const std::string& path);

}  // namespace minitaw::record

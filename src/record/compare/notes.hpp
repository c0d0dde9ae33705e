#pragma once

#include <string>
#include <vector>

#include "record/compare/match.hpp"

namespace minitaw::record::compare {

/// What a reader should know of two sides beyond the figures: what of provenance differs ("git_hash = a ->
/// b"), steps, warm-up and repetitions that do, cases that only one side has, and how far the times can be
/// trusted.
[[nodiscard]] std::vector<std::string> notes_on(const Side& base, const Side& fresh, const Matches& matches);

}  // namespace minitaw::record::compare

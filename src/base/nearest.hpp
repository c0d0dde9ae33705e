#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minitaw {

/// The candidate with the smallest edit distance to `word` (the first of equals); empty if there are none.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace minitaw

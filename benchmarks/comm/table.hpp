#pragma once

#include <string>
#include <vector>

#include "measure.hpp"

namespace minitaw::bench {

/// For terminals, for documents, and for programs: every round of it.
[[nodiscard]] std::string plain_table(const std::vector<Measured>& results);
[[nodiscard]] std::string markdown_table(const std::vector<Measured>& results);
[[nodiscard]] std::string json_text(const std::vector<Measured>& results);

}  // namespace minitaw::bench

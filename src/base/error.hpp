// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace minitaw {
/// Something that the user asked for and cannot be: one sentence, what, where, what would be right.
/// Exit code 2.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A defect of the program, never of the input: one part of miniTaw does not keep what another
/// relies on.
struct LogicError : std::logic_error {
  using std::logic_error::logic_error;
};

/// "; did you mean \"seq\"?": the first of the candidates nearest to `word`; empty if over two
/// thirds must change.
[[nodiscard]] std::string did_you_mean(
    std::string_view word, const std::vector<std::string>& candidates);
/// "1 layer", "2 layers", for messages.
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);
}  // namespace minitaw

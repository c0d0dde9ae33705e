#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace minitaw {

/// Something the user asked for that cannot be done. The message is one sentence: what, where, what would be
/// right. The program prints it and ends with exit code 2.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A promise between two parts of miniTaw that does not hold: a defect of the program, never of the input.
struct LogicError : std::logic_error {
  using std::logic_error::logic_error;
};

/// For "did you mean": the candidate with the smallest edit distance to `word` (the first of equals); empty
/// if there are none.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace minitaw

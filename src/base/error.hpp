// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minitaw {
/// An exception whose message may be given as to fmt::format().
template <class Base>
struct Formatted : Base {
  using Base::Base;

  template <class... Args>
  explicit Formatted(fmt::format_string<Args...> what, Args&&... args)
      : Base(fmt::format(what, std::forward<Args>(args)...)) {}
};

/// Something that the user asked for and cannot be: one sentence, what, where, what would be right.
/// Exit code 2.
struct InputError : Formatted<std::runtime_error> {
  using Formatted::Formatted;
};

/// A defect of the program, never of the input: one part of miniTaw does not keep what another
/// relies on.
struct LogicError : Formatted<std::logic_error> {
  using Formatted::Formatted;
};

/// "; did you mean \"seq\"?": the first of the candidates nearest to `word`; empty if over two
/// thirds must change.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
/// Text for a message of one line: at most `most` bytes, whole characters of UTF-8, no control
/// characters.
std::string printable(std::string_view text, std::size_t most = 60);
/// "1 layer", "2 layers", for messages.
std::string counted(std::int64_t count, std::string_view noun);
}  // namespace minitaw

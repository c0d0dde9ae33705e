// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <span>
#include "schedule/program.hpp"

namespace minitaw::hang {
/// What all others wait for.
struct Culprit {
  enum class Kind : std::uint8_t {
    silent,      ///< the rank does not answer
    unfinished,  ///< it has begun an action of its own and does not end it
    lost,  ///< all sides of a transfer have begun, and it does not end; of a message: its send
    late,  ///< it could begin an action, or the step (action -1), and does not
  };
  Kind kind = Kind::silent;
  int rank = -1, action = -1;  ///< index into RankProgram::actions
  friend auto operator<=>(const Culprit&, const Culprit&) = default;
};

struct Hang {
  /// Of the strongest kind that there is, by rank; none: the states explain nothing.
  std::vector<Culprit> culprits;
  /// "rank 3 waits for rank 2's send of G5; rank 2 (node 0) has not finished BW s2 m1"; empty
  /// without a culprit.
  std::string sentence;
};

/// Finds what ranks that all stand still wait for, by their states. A program without ranks:
/// between cases.
[[nodiscard]] Hang find_culprits(const schedule::Program& program,
    std::span<const schedule::RankState> states,
    const topology::Groups& nodes);
}  // namespace minitaw::hang

#pragma once

#include <string>
#include <string_view>

#include "schedule/program.hpp"

namespace minitaw::schedule {

/// "W3", "G3", "A3", "D3", "E", "E3", "EG", or "s3" where nothing moves; empty without a shard.
[[nodiscard]] std::string payload_text(Payload payload, int shard);

/// One action as a line: "F s3 m1 w0 a0 x0", "send W3 w1 -> r5", "reduce G3 g0 root r2 @group0".
[[nodiscard]] std::string to_text(const Action& action, const Program& program);

/// The whole program; parse_program(to_text(p)) is p again. Lines of a rank:
///   <tick> <lane> <action> [after <lane>:<count> ...]
[[nodiscard]] std::string to_text(const Program& program);

/// Throws InputError with line number and what was expected.
[[nodiscard]] Program parse_program(std::string_view text);

}  // namespace minitaw::schedule

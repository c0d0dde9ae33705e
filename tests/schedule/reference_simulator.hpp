// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "schedule/program.hpp"

namespace minitaw::schedule {
/// Runs a program on made-up numbers, one event at a time in an order drawn from `seed`, with everything in
/// flight that the program allows: messages of one direction that follow each other in a lane are under way
/// together. An action takes hold of its inputs when it starts, leaves junk in its outputs until it ends, and
/// must find its inputs unchanged then. Returns what went wrong: a stop before the end, a buffer changed
/// under an action, or weights that differ from those that plain arithmetic gives. It shares nothing with the
/// validator but the meaning of an action.
[[nodiscard]] std::string simulate_on_numbers(const Program& program, std::uint64_t seed);
}  // namespace minitaw::schedule

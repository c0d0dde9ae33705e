// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include "case/case.hpp"
#include "schedule/account.hpp"

namespace minitaw {
/// A case with what follows from it before it runs: what plans, budgets, runs, checks and
/// predictions read. The program is that of one replica, so its size does not grow with replicas.
struct PlannedCase {
  /// `program`: valid, of this case.
  PlannedCase(Case c, std::shared_ptr<const schedule::Program> program);

  Case settings;
  std::shared_ptr<const schedule::Program> program;
  model::Layout layout;                     ///< as rank 0 has it
  std::vector<schedule::Footprint> memory;  ///< of each rank of the program
};

using Plan = std::shared_ptr<const PlannedCase>;

/// Builds and validates the program of a case. Throws InputError, or LogicError if it is not valid.
Plan plan_of(const Case& c);

/// Plans cases, each once; cases that differ in sizes alone share a program. It keeps up to 32 MiB
/// of programs, and one more.
class Planner {
public:
  /// As plan_of().
  Plan plan(const Case& c);

private:
  struct Known {
    schedule::Request request;
    Plan plan;
  };

  std::vector<Known> known_;
  std::uint64_t bytes_ = 0;  ///< of their programs
};
}  // namespace minitaw

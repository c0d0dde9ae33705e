// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include "model/layout.hpp"
#include "schedule/account.hpp"
#include "schedule/registry.hpp"
#include "topology/groups.hpp"

namespace minitaw {
/// One case of a sweep: every axis has one value. Checked when it is made for a job of P ranks.
struct Case {
  std::string schedule;  ///< "tawpipe:cco=off", canonical; no option is `auto`
  int ranks = 1;         ///< P of this case
  topology::Groups groups{{1}};
  int replicas = 1;       ///< of the schedule, each on P / replicas ranks
  model::Shape shape;     ///< includes S, B, dtype, recompute, and n (of the first rank of n)
  int micro_batches = 1;  ///< M per step, all ranks together
  int steps = 1;          ///< timed steps of a repetition
  int repeats = 1;        ///< repetitions: how often the case is set up and timed
  int warmup = 0;         ///< untimed steps before them, in each repetition
  double learning_rate = 1e-3;
  double clip_norm = 0;    ///< of the whole gradient; 0: not clipped
  std::string data;        ///< path of a file whose bytes are the tokens, or "synthetic"
  std::string data_sum{};  ///< its Checksum; empty: synthetic, or only planned
  std::uint64_t seed = 1;
  std::string attention = "auto";  ///< "auto", "host", "portable" or "cudnn"
  std::string transport = "auto";  ///< "auto" or the name of one
  std::string folder{};            ///< of the deck, from which a file of `schedule` is named
  friend bool operator==(const Case&, const Case&) = default;
};

/// Sets the schedule, and the slices that it passes sequences in. Throws InputError for a text that
/// names none.
void set_schedule(Case& c, const std::string& text);

/// "6", or "2x3" for two replicas on three ranks each.
std::string ranks_text(int ranks, int replicas);
/// With the rank's part of sequences that ranks share.
model::Shape shape_of_rank(const Case& c, int rank);
/// Sequences and tokens of a step, all ranks together.
std::int64_t sequences_of_step(const Case& c);
double tokens_of_step(const Case& c);
/// Context groups, each of which has its own micro-batches unless these visit all ranks; ranks,
/// where sequences are not shared.
int sharers_of(const Case& c);
/// Returns the same step for one rank.
Case on_one_rank(Case c);
schedule::Request request_of(const Case& c);

/// A case with what follows from it before it runs: what plans, budgets, runs, checks and
/// predictions read. The program is that of one replica, so its size does not grow with replicas.
struct PlannedCase {
  /// `program`: valid, of this case.
  PlannedCase(Case c, std::shared_ptr<const schedule::Program> program);

  Case asked;
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
  /// Throws as plan_of() does.
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

// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <span>
#include <utility>
#include "schedule/validate.hpp"

/// Symbolic execution of a program, for validator and simulation.
namespace minitaw::schedule {
struct Place {
  std::int32_t rank = -1, action = -1;
};

/// Pairs of sends and receives, and the calls that make up each collective.
struct Matching {
  std::vector<std::int64_t> base;  ///< an action's number: base[rank] + its index
  std::vector<std::int32_t>
      other;                 ///< by number. send, recv: the peer's action; collective: its number
  std::vector<Place> calls;  ///< of one collective after the other, its members in ring order
  std::vector<std::int64_t> first_call = {0};  ///< of each collective, and the end

  [[nodiscard]] std::int64_t number(Place place) const { return base[place.rank] + place.action; }

  [[nodiscard]] int collectives() const { return static_cast<int>(first_call.size()) - 1; }

  [[nodiscard]] std::span<const Place> calls_of(std::int32_t collective) const {
    return std::span(calls).subspan(
        first_call[collective], first_call[collective + 1] - first_call[collective]);
  }
};

/// Receives the events of an execution, each when all of its sides are there.
class Listener {
public:
  explicit Listener(const Program& program) : program_(program) {}

  Listener& operator=(Listener&&) = delete;
  virtual ~Listener() = default;

  /// A compute action, zero, add or join.
  virtual void local(Place action) = 0;
  virtual void message(Place send, Place receive) = 0;
  /// The members' calls in ring order.
  virtual void collective(std::span<const Place> calls) = 0;

protected:
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }

  const Program& program_;
};

namespace detail {
struct Refusal {
  Violation violation;
};

/// "rank 1, tick 3, 'BW s2 m1 h0 a2 x0 g0'"
[[nodiscard]] std::string place(const Program& program, int rank, int action);

/// Throws Refusal: "rank 1, tick 3, 'BW s2 m1 h0 a2 x0 g0': <what>".
template <class... Args>
[[noreturn]] void refuse(Rule rule,
    const Program& program,
    int rank,
    int action,
    fmt::format_string<Args...> what,
    Args&&... args) {
  throw Refusal{{rule,
      rank,
      action,
      fmt::format(
          "{}: {}", place(program, rank, action), fmt::format(what, std::forward<Args>(args)...))}};
}

/// Throws Refusal for matched_messages and same_collectives.
[[nodiscard]] Matching match(const Program& program);

/// Executes all ranks together with rendezvous transfers: an action starts when its lane is free
/// and its waits are met, a transfer happens when every side has started it. What can happen does
/// not depend on the order of trying: one execution decides. Throws Refusal as match(), and for
/// no_deadlock if it stops before the end.
void execute(const Program& program, Listener& listener);
/// Executes a program on the contents of slots. Throws Refusal as execute(), for exact_gradients
/// and fresh_reads.
void check_contents(const Program& program);
}  // namespace detail
}  // namespace minitaw::schedule

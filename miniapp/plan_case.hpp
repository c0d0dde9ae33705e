#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "deck/settings.hpp"
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::app {

/// What a case will cost, from its program alone.
struct CasePlan {
  deck::Case settings;
  schedule::Program program;
  schedule::ByteMatrix bytes;  ///< one step
  schedule::MessageCounts messages;
  schedule::Ticks ticks;
  std::vector<schedule::Footprint> memory;  ///< per rank
  schedule::Machine machine;                ///< assumed
  schedule::Idle idle;                      ///< with compute as on that machine and transfers that are free

  [[nodiscard]] int worst_rank() const;
  /// Bytes through the busiest group's NIC in one step, and the group; one direction.
  struct Busiest {
    int group = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Busiest busiest(std::uint64_t (schedule::ByteMatrix::*direction)(const topology::Groups&, int)
                                    const) const;
  /// Seconds that the busiest NIC needs at least for the bytes of one step, both directions at once; nothing
  /// unless the machine's NICs are known.
  [[nodiscard]] std::optional<double> nic_seconds() const;
  /// Ticks without computation, summed over the ranks, over all ticks.
  [[nodiscard]] double idle_ticks_share() const;
};

/// Builds and validates the program of a case and counts what it asks for. Throws InputError if the schedule
/// does not fit the case.
[[nodiscard]] CasePlan plan_case(const deck::Case& c, const schedule::Machine& machine = {});

/// Memory of each rank of a case whose program and layout are known; the layout may have another S.
[[nodiscard]] std::vector<schedule::Footprint>
memory_of(const deck::Case& c, const schedule::Program& program, const model::Layout& layout);

/// Durations of its actions on a machine; the program must live as long as the result.
[[nodiscard]] schedule::Costs costs_of(const deck::Case& c, const schedule::Program& program,
                                       const model::Layout& layout, const schedule::Machine& machine);

/// For people; `number` counts from 0.
[[nodiscard]] std::string to_text(const CasePlan& plan, int number);
[[nodiscard]] nlohmann::ordered_json to_json(const CasePlan& plan);
[[nodiscard]] nlohmann::ordered_json to_json(const schedule::Machine& machine);

}  // namespace minitaw::app

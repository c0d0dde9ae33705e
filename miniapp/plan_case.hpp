#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "record/table.hpp"
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

/// Whether a case fits the memory of a device, before anything is allocated.
struct Fit {
  std::uint64_t available = 0;  ///< bytes of one device
  std::uint64_t arena = 0;      ///< of the worst rank, exact
  std::uint64_t libraries = 0;  ///< estimate of what driver, matrix products and attention take beside it
  std::int64_t largest_seq =
      0;  ///< largest multiple of 128 tokens that would fit with all else equal; 0: none

  [[nodiscard]] std::uint64_t needed() const { return arena + libraries; }
  [[nodiscard]] bool fits() const { return needed() <= available; }
};
[[nodiscard]] Fit fit(const CasePlan& plan, std::uint64_t available);

/// "80G", "141GiB", "512M" or bytes; steps of 1024. Throws InputError, which names the option it came from.
[[nodiscard]] std::uint64_t parse_memory(const std::string& text,
                                         const std::string& option = "--device-memory");

/// "1.50 GiB", with a unit that leaves a readable number.
[[nodiscard]] std::string size_text(double bytes);

[[nodiscard]] std::string to_text(const Fit& fit);
[[nodiscard]] nlohmann::ordered_json to_json(const Fit& fit);

/// --timeline and --case of `plan`.
struct TimelineOptions {
  std::string path;   ///< empty: no timeline
  std::string cases;  ///< "2", "0,3" or "all"; empty: the first
  std::string costs;  ///< file of durations; empty: those of the machine
};

/// The cases to draw, in the order given. Throws InputError for a path that does not end in
/// .json, or cases that the deck does not have.
[[nodiscard]] std::vector<int> chosen_cases(const TimelineOptions& options, int cases);

/// Executes the chosen cases on the machine and writes their timelines into one file (trace::to_json). Throws
/// InputError for cases too large to draw or a file that cannot be written.
void write_timeline(const TimelineOptions& options, const deck::Deck& deck, const schedule::Machine& machine);

/// "400T", "50G" or a plain number; steps of 1000. `option` is only named. Throws InputError.
[[nodiscard]] double parse_rate(const std::string& option, const std::string& text);

/// The same in bytes/s, or in bits/s: "100mbit", "1gbit".
[[nodiscard]] double parse_link_rate(const std::string& option, const std::string& text);

/// "400 TFLOP/s, 450 GB/s inside its group and 50 GB/s to others".
[[nodiscard]] std::string to_text(const schedule::Machine& machine);

/// What the table over all cases of a deck shows of one.
struct PlanRow {
  int number = 0;  ///< from 0
  record::Row settings;
  std::string groups, slots;
  int ticks = 0;
  double inside = 0, between = 0;         ///< bytes per step, mean over the ranks
  std::uint64_t nic_out = 0, nic_in = 0;  ///< bytes per step of the busiest group
  std::optional<double> nic_s;            ///< seconds that this takes at least
  schedule::Footprint memory;             ///< of the rank that needs most
  double step_s = 0, idle = 0;  ///< if transfers take no time: seconds, and share of the ranks' time
};
[[nodiscard]] PlanRow row_of(const CasePlan& plan, int number);

/// Two lines of names and units that begin with #, one aligned line a case with a column for each setting in
/// which they differ, and a line on all of them together.
[[nodiscard]] std::string to_text(const std::vector<PlanRow>& rows);

/// "24 ranks in groups 8+8+8", and in how many replicas if there are several.
[[nodiscard]] std::string ranks_text(const deck::Case& c);

/// "3/2/8/0/1": slots for weights, gradients, what F keeps, what B leaves for W and hidden states.
[[nodiscard]] std::string slots_text(const schedule::RankProgram& rank);

}  // namespace minitaw::app

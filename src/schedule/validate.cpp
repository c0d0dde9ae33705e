#include "schedule/validate.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "schedule/play.hpp"
#include "schedule/play_contents.hpp"
#include "schedule/play_matching.hpp"
#include "schedule/text.hpp"
#include "schedule/validate_detail.hpp"

namespace minitaw::schedule {
namespace detail {

std::string name_of(Slot slot) { return fmt::format("{}{}", letter_of(slot.cls), slot.index); }

std::string place(const Program& program, int rank, int action) {
  if (rank < 0) return "the program";
  if (action < 0) return fmt::format("rank {}", rank);
  Action shown = program.ranks[rank].actions[action];
  if (shown.communicator >= static_cast<int>(program.communicators.size())) shown.communicator = -1;
  return fmt::format("rank {}, tick {}, '{}'", rank, shown.tick, to_text(shown, program));
}

void refuse(Rule rule, const Program& program, int rank, int action, const std::string& what) {
  throw Refusal{{rule, rank, action, fmt::format("{}: {}", place(program, rank, action), what)}};
}

namespace {

void check_rank(const Program& program, int rank, const LaneSequences& sequences) {
  const LocalOrder order = local_order(program, rank, sequences);
  check_hazards(program, rank, order);
  check_join(program, rank, order, sequences);
}

void check_contents(const Program& program, const std::vector<LaneSequences>& sequences,
                    const Matching& matching, bool listed) {
  Contents contents(program, listed);
  play(program, sequences, matching, contents);
  contents.check_end();
}

void check(const Program& program) {
  check_form(program);
  const std::vector<LaneSequences> sequences = lane_sequences(program);
  const int ranks = static_cast<int>(program.ranks.size());
  for (int r = 0; r < ranks; ++r) check_rank(program, r, sequences[r]);
  const Matching matching = match(program);
  try {
    check_contents(program, sequences, matching, false);
  } catch (const Refusal&) {
    check_contents(program, sequences, matching, true);  // finds the same, and can name what is missing
    throw;
  }
  for (int r = 0; r < ranks; ++r) check_slots(program, r);
}

}  // namespace
}  // namespace detail

std::string name_of(Rule rule) {
  switch (rule) {
  case Rule::fresh_reads:
    return "fresh reads";
  case Rule::no_overwrite:
    return "no overwrite";
  case Rule::matched_messages:
    return "matched messages";
  case Rule::same_collectives:
    return "same collectives";
  case Rule::exact_gradients:
    return "exact gradients";
  case Rule::all_waited:
    return "all waited";
  case Rule::no_deadlock:
    return "no deadlock";
  case Rule::slots_accounted:
    return "slots accounted";
  }
  return "";
}

std::optional<Violation> validate(const Program& program) {
  try {
    detail::check(program);
  } catch (const detail::Refusal& refusal) {
    return refusal.violation;
  }
  return std::nullopt;
}

void require_valid(const Program& program) {
  const std::optional<Violation> violation = validate(program);
  if (!violation) return;
  throw LogicError(fmt::format("schedule {} breaks the rule \"{}\": {}\n{}", program.schedule,
                               name_of(violation->rule), violation->message, grid(program, violation)));
}

}  // namespace minitaw::schedule

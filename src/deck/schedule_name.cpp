#include "deck/schedule_name.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "schedule/registry.hpp"

namespace minitaw::deck {

namespace {

std::string name_of(const std::string& schedule) { return schedule.substr(0, schedule.find(':')); }

/// Schedules that split the blocks into one shard per rank.
bool has_shard_per_rank(const std::string& schedule) { return name_of(schedule) == "tawpipe"; }

}  // namespace

std::string to_schedule(const Value& value) {
  const std::string text = to_text("schedule", value);
  if (printable(text) != text)
    throw InputError(fmt::format("schedule: {} is not a schedule", describe(value)));
  return schedule::to_text(schedule::parse_spec(text));
}

bool is_serial(const std::string& schedule) { return name_of(schedule) == "serial"; }

void check_schedule(const Case& c) {
  if (c.micro_batches % c.ranks != 0)
    throw InputError(fmt::format(
        "micro_batches: {} micro-batches cannot be shared evenly by {} ranks; use a multiple of {}",
        c.micro_batches, c.ranks, c.ranks));
  if (has_shard_per_rank(c.schedule) && c.shape.layers < c.ranks)
    throw InputError(fmt::format("layers: {} layers are too few for {} on {} ranks, which needs a shard of "
                                 "at least one layer on each rank; "
                                 "use layers = {} or fewer ranks",
                                 c.shape.layers, c.schedule, c.ranks, c.ranks));
}

}  // namespace minitaw::deck

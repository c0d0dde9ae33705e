#include "deck/schedule_name.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace minitaw::deck {

namespace {

std::string name_of(const std::string& schedule) { return schedule.substr(0, schedule.find(':')); }

}  // namespace

std::string to_schedule(const Value& value) {
  const std::string text = to_text("schedule", value);
  if (printable(text) != text)
    throw InputError(fmt::format("schedule: {} is not a schedule", describe(value)));
  return schedule::to_text(schedule::parse_spec(text));
}

bool is_serial(const std::string& schedule) { return schedule::entry_of(name_of(schedule)).one_rank; }

bool passes_activations(const std::string& schedule) {
  return schedule::entry_of(name_of(schedule)).passes_activations;
}

schedule::Request request_of(const Case& c) {
  return {schedule::parse_spec(c.schedule), c.groups, c.micro_batches, c.shape.layers, c.replicas};
}

void check_schedule(const Case& c) { schedule::check(request_of(c)); }

}  // namespace minitaw::deck

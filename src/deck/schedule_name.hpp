#pragma once

#include <string>

#include "deck/settings.hpp"
#include "deck/value.hpp"
#include "schedule/registry.hpp"

namespace minitaw::deck {

/// The canonical name of a schedule with its options. Throws InputError "schedule: ..." for an unknown one.
[[nodiscard]] std::string to_schedule(const Value& value);

/// True if the schedule uses one rank whatever the job has.
[[nodiscard]] bool is_serial(const std::string& schedule);

/// True if micro-batches visit all ranks.
[[nodiscard]] bool passes_activations(const std::string& schedule);

/// What a case asks of its schedule.
[[nodiscard]] schedule::Request request_of(const Case& c);

/// What a schedule asks of a case, without building its program (a sweep may have many thousand cases):
/// micro-batches that the ranks share evenly, a layer for each shard. Throws InputError "key: ...".
void check_schedule(const Case& c);

}  // namespace minitaw::deck

// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "instruments/predict/rating.hpp"
#include "print.hpp"

namespace minitaw::app {
// Columns of entries that have a `prediction`.

template <class Entry>
TableColumn<Entry> step_column() {
  return {.title = "step",
      .units = "s",
      .value = [](const Entry& e) { return e.prediction.seconds; },
      .name = "step_s"};
}

template <class Entry>
TableColumn<Entry> rate_column() {
  return {.title = "rate",
      .units = "token/s",
      .value = [](const Entry& e) { return e.prediction.tokens_per_s; },
      .name = "tokens_per_s"};
}

template <class Entry>
TableColumn<Entry> mfu_column() {
  return {.title = "MFU",
      .units = "%",
      .value = [](const Entry& e) { return e.prediction.mfu; },
      .format = as_percent,
      .name = "mfu"};
}

template <class Entry>
TableColumn<Entry> memory_column() {
  return {.title = "memory",
      .units = "GiB",
      .value = [](const Entry& e) -> std::int64_t { return e.prediction.memory; },
      .format = {.factor = 0x1p-30, .style = Format::fixed, .decimals = 2},
      .name = "memory_bytes"};
}

/// Prints the cases of each rating, then the ratings.
void tell_ratings(const predict::Ratings& ratings, const std::string& heading);
Json ratings_json(const predict::Ratings& ratings);
}  // namespace minitaw::app

// SPDX-License-Identifier: BSD-3-Clause
// predict --rating: what a machine is rated, and what it loses with half of a part.
#include "instruments/predict/rating.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "base/error.hpp"
#include "base/range.hpp"
#include "instruments/rating.hpp"

namespace minitaw::app {
namespace {
using predict::Part, predict::RatedCase, predict::Rating;

/// A case, and of which rating it is.
struct RatedRow : RatedCase {
  std::string name;
};

using RatedColumns = std::vector<TableColumn<RatedRow>>;

RatedColumns columns_of_cases() {
  RatedColumns columns = {
      {.title = "", .value = [](const RatedRow& r) { return r.name; }, .width = -7}};
  for (const char* name : {"seq", "schedule", "replicas", "micro_batch", "recompute"}) {
    columns.push_back(setting_column<RatedRow>(name));
    if (name == std::string_view("schedule"))
      columns.back().width = -1;
  }
  const RatedColumns figures = {step_column<RatedRow>(),
      {.title = "steps",
          .value = [](const RatedRow& r) -> std::int64_t {
            return predict::steps_of(r.asked, r.prediction.seconds);
          },
          .name = "steps"},
      rate_column<RatedRow>(),
      mfu_column<RatedRow>(),
      memory_column<RatedRow>(),
      {.title = "limited by",
          .value = [](const RatedRow& r) { return predict::limit_of(r); },
          .width = -1,
          .name = "limit"}};
  columns.insert(columns.end(), figures.begin(), figures.end());
  return columns;
}

TableColumn<Rating> loss_column(const char* title, const char* name, Part part) {
  const auto value = [part](const Rating& r) {
    const auto loss = r.losses.find(part);
    return loss == r.losses.end() ? std::numeric_limits<double>::quiet_NaN() : loss->second;
  };
  return {.title = title,
      .units = "-%",
      .value = value,
      .format = as_percent,
      .name = std::string("loss.half_") + name};
}

const std::vector<TableColumn<Rating>>& columns_of_ratings() {
  static const std::vector<TableColumn<Rating>> all = {
      {.title = "", .value = [](const Rating& r) { return r.name; }, .width = -7, .name = "of"},
      {.title = "rating",
          .units = "token/s",
          .value = [](const Rating& r) { return r.tokens_per_s; },
          .name = "tokens_per_s"},
      {.title = "demand",
          .units = "token/s",
          .value = [](const Rating& r) { return (1 - predict::margin) * r.tokens_per_s; },
          .name = "demand_tokens_per_s"},
      {.title = "hours",
          .value = [](const Rating& r) { return r.hours; },
          .format = {.decimals = 2},
          .name = "hours"},
      loss_column("half between", "between", Part::between),
      loss_column("half inside", "inside", Part::inside),
      loss_column("half memory", "memory", Part::memory)};
  return all;
}

std::vector<RatedRow> rows_of(const std::vector<Rating>& ratings) {
  std::vector<RatedRow> rows;
  for (const Rating& rating : ratings)
    for (const RatedCase& rated : rating.cases)
      rows.push_back({rated, rating.name});
  return rows;
}

Json rating_json(const Rating& rating) {
  Json json;
  put(json, columns_of_ratings(), rating);
  for (const RatedRow& row : rows_of({rating})) {
    Json of_case = {{"settings", settings_json(row.asked)}};
    put(of_case, columns_of_cases(), row);
    json["cases"].push_back(of_case);
  }
  return json;
}
}  // namespace

void tell_ratings(const predict::Ratings& ratings, const std::string& heading) {
  const std::vector<RatedRow> rows = rows_of(ratings.all);
  write_stdout(
      heading + TextTable<RatedRow>(columns_of_cases(), rows).text(rows) +
      TextTable<Rating>(columns_of_ratings(), ratings.all).text(ratings.all) +
      fmt::format("# demand: what a contract may ask for, {:.0f} % less than is predicted\n",
          100 * predict::margin));
}

Json ratings_json(const predict::Ratings& ratings) {
  const auto json = [](const Rating& rating) { return rating_json(rating); };
  return {{"margin", predict::margin}, {"ratings", list_of(ratings.all, json)}};
}
}  // namespace minitaw::app

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include "base/error.hpp"
#include "record/schema.hpp"

namespace minitaw::record {
static trace::RankTime mean_of(const std::vector<trace::RankTime>& ranks) {
  trace::RankTime mean = trace::total_of(ranks);
  const auto count = static_cast<double>(ranks.size());
  for (double* part : {&mean.compute, &mean.idle, &mean.communication, &mean.hidden})
    *part /= count;
  for (double& exposed : mean.exposed)
    exposed /= count;
  return mean;
}

MeasuredRun::MeasuredRun(const CaseResult& run, const RunPosition& at)
    : result(run),
      position(at),
      samples(list_of(run.seconds, [](const auto& ranks) { return std::ranges::max(ranks); })),
      mean(mean_of(run.time)) {
  std::ranges::sort(samples);
  q1 = quantile(samples, 0.25);
  step = quantile(samples, 0.5);
  q3 = quantile(samples, 0.75);
  spread = (q3 - q1) / step;
  tokens_per_s = tokens_of_step(run.asked) / step;
  tflops = 1e-12 * tokens_per_s * model::flops_per_token(run.asked.shape);
  tflops_rank = tflops / run.asked.ranks;
  for (const LinkBytes& link : run.bytes) {
    const bool inside = run.asked.groups.together(link.from, link.to);
    (inside ? planned_inside : planned_between) += static_cast<std::int64_t>(link.planned);
    (inside ? counted_inside : counted_between) += static_cast<std::int64_t>(link.counted);
  }
}

Row make_row(const CaseResult& result, const RunPosition& position) {
  const MeasuredRun measured(result, position);
  return {list_of(columns(), [&](const Column& column) { return column.value(measured); })};
}

std::vector<Row> preview(const std::vector<Case>& cases) {
  return list_of(cases, [](const Case& c) {
    CaseResult result;
    result.asked = c;
    return make_row(result);
  });
}

const Cell& Row::cell(std::string_view column) const {
  const auto at =
      std::ranges::find(columns(), column, [](const Column& c) { return c.field.name; });
  if (at == columns().end())
    throw LogicError("/runs has no column \"{}\"", column);
  return cells.at(at - columns().begin());
}

template <class T>
static const T& get(const Row& row, std::string_view column) {
  if (const T* value = std::get_if<T>(&row.cell(column)))
    return *value;
  throw InputError("/runs/{} has another type than miniTaw gives it", column);
}

const std::string& Row::text(std::string_view column) const {
  return get<std::string>(*this, column);
}

std::int64_t Row::integer(std::string_view column) const {
  return get<std::int64_t>(*this, column);
}

double Row::real(std::string_view column) const {
  return get<double>(*this, column);
}
}  // namespace minitaw::record

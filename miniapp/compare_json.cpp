#include <cmath>
#include <nlohmann/json.hpp>

#include "compare_output.hpp"

namespace minitaw::app {

namespace {

using namespace record::compare;
using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json interval(const std::optional<Interval>& of) {
  if (!of) return nullptr;
  return {{"estimate", number(of->estimate)}, {"low", number(of->low)}, {"high", number(of->high)}};
}

Json aspect_json(const Aspect& aspect) {
  Json object = {{"outcome", name_of(aspect.outcome)}, {"word", aspect.word}};
  if (!aspect.units.empty()) {
    object["base [" + aspect.units + "]"] = number(aspect.base);
    object["new [" + aspect.units + "]"] = number(aspect.fresh);
  }
  if (aspect.name == "time") object["ratio"] = interval(aspect.ratio);
  object["reason"] = aspect.reason;
  return object;
}

/// What was asked for, by the names of /summary.
Json settings(const record::Row& row) {
  Json object;
  for (std::size_t i = 0; i < record::columns().size(); ++i) {
    const record::Column& column = record::columns()[i];
    if (column.setting && column.name != "identity")
      std::visit([&](const auto& cell) { object[column.name] = cell; }, row.cells()[i]);
  }
  return object;
}

Json case_json(const CaseComparison& c) {
  Json aspects;
  for (const Aspect& aspect : c.aspects) aspects[aspect.name] = aspect_json(aspect);
  return {{"case", c.row.integer("case")},
          {"settings", settings(c.row)},
          {"differs", c.differs},
          {"measured_by", name_of(c.times.unit)},
          {"measurements_base", c.times.base.size()},
          {"measurements_new", c.times.fresh.size()},
          {"aspects", aspects}};
}

}  // namespace

std::string compare_json(const Comparison& comparison, const CompareHeading& heading) {
  Json cases = Json::array();
  for (const CaseComparison& c : comparison.cases) cases.push_back(case_json(c));
  const Json all = {{"comparison", comparison.text()},
                    {"outcome", name_of(comparison.outcome())},
                    {"base", heading.base},
                    {"new", heading.fresh},
                    {"threshold", comparison.rules.time.threshold},
                    {"memory_threshold", comparison.rules.memory_threshold},
                    {"confidence", comparison.rules.time.confidence},
                    {"quantile", comparison.rules.time.quantile},
                    {"mean_ratio", interval(comparison.mean)},
                    {"notes", comparison.notes},
                    {"only_base", comparison.only_base},
                    {"only_new", comparison.only_fresh},
                    {"cases", cases}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace minitaw::app

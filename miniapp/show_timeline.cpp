#include "show_timeline.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/error.hpp"
#include "record/recorder.hpp"
#include "record/timeline.hpp"
#include "show_planned.hpp"
#include "timeline_file.hpp"

namespace minitaw::app {

namespace {

/// The case that is meant if none is named.
int only_case(const std::string& file) {
  const std::vector<int> cases = record::cases_with_timeline(file);
  if (cases.empty())
    throw InputError(fmt::format("no case of {} has a timeline; minitaw run --timeline keeps them", file));
  if (cases.size() > 1)
    throw InputError(
        fmt::format("{} has timelines of {} cases; choose one with --case, for example --case {}", file,
                    cases.size(), cases.front()));
  return cases.front();
}

}  // namespace

int show_timeline(const std::string& file, const ShowTimeline& options) {
  require_timeline_name(options.output);
  const int number = options.number >= 0 ? options.number : only_case(file);
  trace::Timeline measured = record::read_timeline(file, number);
  const record::Row row = record::read_rows(file)[number];
  measured.title = measured_title(row, measured);
  std::vector<trace::Timeline> timelines;
  if (options.planned) timelines.push_back(planned_timeline(row, measured));
  timelines.push_back(std::move(measured));
  write_timelines(options.output, timelines);
  fmt::print("{}\n", options.output);
  return 0;
}

}  // namespace minitaw::app

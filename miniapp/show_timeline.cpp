#include "show_timeline.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.hpp"
#include "record/recorder.hpp"
#include "record/timeline.hpp"
#include "show_planned.hpp"
#include "trace/write.hpp"

namespace minitaw::app {

namespace {

using Write = std::string (*)(std::span<const trace::Timeline>);

/// By the ending of the file's name.
Write format_of(const std::string& output) {
  const std::string ending = std::filesystem::path(output).extension().string();
  if (ending == ".svg") return trace::to_svg;
  if (ending == ".json") return trace::to_chrome_trace;
  throw InputError(fmt::format(
      "--timeline: \"{}\" ends neither in .svg (a picture) nor in .json (a Chrome trace)", output));
}

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

void write(const std::string& output, const std::string& text) {
  std::ofstream file(output, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw InputError(fmt::format("{} cannot be written", output));
}

}  // namespace

int show_timeline(const std::string& file, const ShowTimeline& options) {
  const Write to_text = format_of(options.output);
  const int number = options.number >= 0 ? options.number : only_case(file);
  trace::Timeline measured = record::read_timeline(file, number);
  const record::Row row = record::read_rows(file)[number];
  measured.title = measured_title(row, measured);
  std::vector<trace::Timeline> timelines;
  if (options.planned) timelines.push_back(planned_timeline(row, measured));
  timelines.push_back(std::move(measured));
  write(options.output, to_text(timelines));
  fmt::print("{}\n", options.output);
  return 0;
}

}  // namespace minitaw::app

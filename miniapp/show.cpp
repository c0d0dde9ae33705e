#include <fmt/format.h>

#include <memory>

#include "record/recorder.hpp"
#include "record/table.hpp"
#include "record/verdict.hpp"
#include "show_timeline.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

struct Options {
  std::string file;
  bool csv = false, json = false;
  ShowTimeline timeline;
};

int show(const Options& options) {
  if (!options.timeline.output.empty()) return show_timeline(options.file, options.timeline);
  const std::vector<record::Row> rows = record::read_rows(options.file);
  if (options.csv) {
    fmt::print("{}", record::to_csv(rows));
  } else if (options.json) {
    fmt::print("{}", record::to_json(rows));
  } else {
    const record::Table table(rows);
    fmt::print("{}{}", record::settings_text(rows), table.header());
    for (const record::Row& row : rows) fmt::print("{}", table.row(row));
    fmt::print("{}", record::closing_text(rows));
  }
  return record::verdict(rows).valid() ? 0 : 1;
}

}  // namespace

void add_show(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("show", "print the table of a result file, or draw a timeline");
  verb->add_option("FILE", options->file, "result file (.h5)")->required();
  CLI::Option* csv = verb->add_flag("--csv", options->csv, "every column, as CSV with units in the header");
  CLI::Option* json =
      verb->add_flag("--json", options->json, "every column, as a JSON list with units in the names")
          ->excludes(csv);
  CLI::Option* timeline =
      verb->add_option("--timeline", options->timeline.output,
                       "draw when the actions of a measured step ran (minitaw run --timeline): a picture "
                       "(.svg), or a Chrome trace for ui.perfetto.dev (.json)")
          ->type_name("OUT")
          ->excludes(csv)
          ->excludes(json);
  verb->add_option("--case", options->timeline.number, "number of the case, if the file has several")
      ->needs(timeline);
  verb->add_flag(
          "--planned", options->timeline.planned,
          "draw the plan of the case above it, on the same scale: every action takes its measured mean")
      ->needs(timeline);
  verb->callback([&invocation, options] { invocation.action = [options] { return show(*options); }; });
}

}  // namespace minitaw::app

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <set>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "output.hpp"
#include "record/environment.hpp"
#include "record/official.hpp"
#include "record/read.hpp"
#include "record/read_case.hpp"
#include "record/read_provenance.hpp"
#include "record/recorder.hpp"
#include "record/samples.hpp"
#include "record/table.hpp"
#include "record/verdict.hpp"
#include "show_timeline.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

struct Options {
  std::string file;
  bool csv = false, json = false, samples = false, rules = false;
  ShowTimeline timeline;
};

std::string samples_text(const Options& options) {
  const auto cases = record::read_cases(record::Image::load(options.file), options.file);
  return options.csv ? record::samples_to_csv(cases) : record::samples_to_json(cases);
}

std::string summary_text(const Options& options, const std::vector<record::Row>& rows) {
  if (options.csv) return record::to_csv(rows);
  return options.json ? record::to_json(rows) : record::whole_text(rows);
}

/// Each set of shaped links that a session had, once.
std::string links_text(const record::Image& image, const std::string& path) {
  std::set<std::string> each;
  for (const record::Provenance& session : record::read_sessions(image, path))
    each.insert(record::links_text(session.links));
  return fmt::format("{}", fmt::join(each, ""));
}

int show_rules(const std::string& path) {
  const record::Image image = record::Image::load(path);
  const record::Official official =
      record::official(record::read_summary(image, path), record::read_sessions(image, path));
  put_out(official.text());
  return official.yes() ? 0 : 1;
}

int show(const Options& options) {
  if (!options.timeline.output.empty()) return show_timeline(options.file, options.timeline);
  if (options.rules) return show_rules(options.file);
  if (options.samples && !options.csv && !options.json)
    throw InputError("--samples needs --csv or --json: it is a table for other programs");
  const record::Image image = record::Image::load(options.file);
  const std::vector<record::Row> rows = record::read_summary(image, options.file);
  if (!options.samples && !options.csv && !options.json) put_out(links_text(image, options.file));
  put_out(options.samples ? samples_text(options) : summary_text(options, rows));
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
  CLI::Option* samples = verb->add_flag(
      "--samples", options->samples, "with --csv or --json: a row for each case, repetition, step and rank");
  CLI::Option* rules =
      verb->add_flag(
              "--rules", options->rules,
              "whether the result is an official one of a named size, and its rate (docs/run-rules.md)")
          ->excludes(csv)
          ->excludes(json)
          ->excludes(samples);
  CLI::Option* timeline =
      verb->add_option("--timeline", options->timeline.output,
                       "draw when the actions of a measured step ran (minitaw run --timeline): a picture "
                       "(.svg), or a Chrome trace for ui.perfetto.dev (.json)")
          ->type_name("OUT")
          ->excludes(csv)
          ->excludes(json)
          ->excludes(samples)
          ->excludes(rules);
  verb->add_option("--case", options->timeline.number, "number of the case, if the file has several")
      ->needs(timeline);
  verb->add_flag(
          "--planned", options->timeline.planned,
          "draw the plan of the case above it, on the same scale: every action takes its measured mean")
      ->needs(timeline);
  verb->callback([&invocation, options] { invocation.action = [options] { return show(*options); }; });
}

}  // namespace minitaw::app

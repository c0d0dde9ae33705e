#include <fmt/format.h>

#include <memory>

#include "record/recorder.hpp"
#include "record/table.hpp"
#include "record/verdict.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

struct Options {
  std::string file;
  bool csv = false, json = false;
};

int show(const Options& options) {
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
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("show", "print the table of a result file");
  verb->add_option("FILE", options->file, "result file (.h5)")->required();
  CLI::Option* csv = verb->add_flag("--csv", options->csv, "every column, as CSV with units in the header");
  verb->add_flag("--json", options->json, "every column, as a JSON list with units in the names")
      ->excludes(csv);
  verb->callback([&invocation, options] { invocation.action = [options] { return show(*options); }; });
}

}  // namespace minitaw::app

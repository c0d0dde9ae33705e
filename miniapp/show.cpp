// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/ranges.h>
#include <memory>
#include <set>
#include <unistd.h>
#include "cli/cli11.hpp"
#include "instruments.hpp"
#include "record/recorder.hpp"
#include "record/table.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
struct ShowOptions {
  std::string file;
  bool json = false, csv = false;
};

/// Shaped links of the sessions, settings, table, figure of merit and verdict.
std::string text_of(const record::Contents& file) {
  std::set<std::string> links;
  for (const std::vector<std::string>& session : file.links)
    links.insert(record::links_text(session));
  const auto table = record::make_table(file.rows, isatty(STDOUT_FILENO) != 0);
  std::string text =
      fmt::format("{}{}{}", fmt::join(links, ""), record::settings_text(file.rows), table.header());
  for (const record::Row& row : file.rows)
    text += table.row(row);
  return text + record::closing_text(file.rows, extensions());
}

int show(const ShowOptions& options) {
  const record::Contents file = record::read_contents(options.file);
  write_stdout(options.json  ? record::to_json(file.rows)
               : options.csv ? record::to_csv(file.rows)
                             : text_of(file));
  return record::is_valid(record::verdict(file.rows)) ? 0 : 1;
}
}  // namespace

void add_show(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* verb = app.add_subcommand("show", "print the table of a result file");
  verb->add_option("FILE", options->file, "result file (.h5)")->required();
  CLI::Option* json = verb->add_flag("--json", options->json, "every column, as a JSON list");
  verb->add_flag("--csv", options->csv, "every column, with units in the titles")->excludes(json);
  verb->callback([&invocation, options] { invocation.code = show(*options); });
}
}  // namespace minitaw::app

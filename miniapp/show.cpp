// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>
#include "cli/cli11.hpp"
#include "instruments.hpp"
#include "print.hpp"
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
std::string text_of(const record::Results& file) {
  std::set<std::string> links;
  for (const std::vector<std::string>& session : file.links)
    links.insert(record::links_text(session));
  const auto table = record::make_table(file.rows, isatty(STDOUT_FILENO) != 0);
  std::string text =
      fmt::format("{}{}{}", fmt::join(links, ""), record::settings_text(file.rows), table.header());
  for (const record::Row& row : file.rows)
    text += table.row(row);
  return text + record::closing_text(file.rows, remarks());
}

Json json_of(const record::Results& file) {
  Json json;
  json["verdict"] = record::verdict(file.rows);
  json["figures_of_merit"] = record::figures_of_merit(file.rows);
  for (const record::Column& column : record::columns())
    json["units"][column.field.name] = column.field.units;
  json["runs"] = Json::array();
  for (const record::Row& row : file.rows) {
    Json run;
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      put(run, record::columns()[i].field.name, row.cells[i]);
    json["runs"].push_back(std::move(run));
  }
  return json;
}

int show(const ShowOptions& options, const Invocation& invocation) {
  const record::Results file = record::read_results(options.file);
  if (options.json)
    write_json(invocation, json_of(file));
  else
    write_stdout(options.csv ? record::to_csv(file.rows) : text_of(file));
  return record::is_valid(record::verdict(file.rows)) ? 0 : 1;
}
}  // namespace

void add_show(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* verb = app.add_subcommand("show", "print the table of a result file");
  verb->add_option("FILE", options->file, "result file (.h5)")->required();
  CLI::Option* json = verb->add_flag("--json", options->json, "every column, as JSON");
  verb->add_flag("--csv", options->csv, "every column, with units in the titles")->excludes(json);
  verb->callback([&invocation, options] { invocation.code = show(*options, invocation); });
}
}  // namespace minitaw::app

// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/ranges.h>
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
/// Shaped links of the sessions, settings, table, figure of merit and verdict.
std::string text_of(const record::Results& file) {
  std::set<std::string> links;
  for (const std::vector<std::string>& session : file.links)
    links.insert(record::links_text(session));
  const auto table = record::make_table(file.rows, isatty(STDOUT_FILENO) != 0);
  return fmt::format("{}{}{}{}",
      fmt::join(links, ""),
      record::settings_text(file.rows),
      table.text(file.rows),
      record::closing_text(file.rows, remarks(), file.asked, file.stopped));
}

Json json_of(const record::Results& file) {
  Json json;
  json["verdict"] = record::verdict(file.rows, file.asked, file.stopped);
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

class Show final : public Verb {
public:
  explicit Show(CLI::App& app) : Verb(app, "show", "print the table of a result file") {
    command_.add_option("FILE", file_, "result file (.h5)")->required();
    CLI::Option* json = command_.add_flag("--json", json_, "every column, as JSON");
    command_.add_flag("--csv", csv_, "every column, with units in the titles")->excludes(json);
  }

  int execute(const Invocation& invocation) override {
    const record::Results file = record::read_results(file_);
    if (json_)
      write_json(invocation, json_of(file));
    else
      write_stdout(csv_ ? record::to_csv(file.rows) : text_of(file));
    return record::is_valid(record::verdict(file.rows, file.asked, file.stopped)) ? 0 : 1;
  }

private:
  std::string file_;
  bool json_ = false, csv_ = false;
};
}  // namespace

std::unique_ptr<Verb> make_show(CLI::App& app) {
  return std::make_unique<Show>(app);
}
}  // namespace minitaw::app

// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/keys.hpp"
#include "record/table.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
struct HelpOptions {
  std::string topic;
  bool markdown = false;
};

std::string help(const CLI::App& app, const HelpOptions& options) {
  const std::string& topic = options.topic;
  if (topic.empty())  // app.help() would be that of the verb `help`
    return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
  if (topic == "keys")
    return deck::help_text();
  if (topic == "results")
    return record::schema_text(options.markdown);
  if (const deck::Setting* key = deck::find_key(topic))
    return deck::help_text(*key);
  std::vector<std::string> topics = {"keys", "results", "schedules"};
  for (const deck::Setting& key : deck::keys())
    topics.push_back(key.name);
  std::string schedules;
  for (const schedule::Entry& entry : schedule::registry()) {
    if (entry.name == topic)
      return deck::help_text(entry);
    topics.push_back(entry.name);
    if (!entry.needs_file)
      schedules += entry.name + "\n";
  }
  if (topic == "schedules")
    return schedules;
  throw InputError("no help on \"{}\"{} (minitaw help keys lists keys and schedules)",
      topic,
      did_you_mean(topic, topics));
}
}  // namespace

void add_help(CLI::App& app, Invocation&) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* verb = app.add_subcommand(
      "help", "explain the schedules, the keys of a deck and the datasets of a result file");
  verb->add_option("TOPIC",
      options->topic,
      "\"keys\", \"results\", \"schedules\" (a line each), or the name of a key or a schedule");
  verb->add_flag("--markdown", options->markdown, "results as the tables of docs/results.md");
  verb->callback([&app, options] { write_stdout(help(app, *options)); });
}
}  // namespace minitaw::app

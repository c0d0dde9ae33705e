// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/keys.hpp"
#include "record/table.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
std::string help(const CLI::App& app, const std::string& topic) {
  if (topic.empty())  // app.help() would be that of the verb `help`
    return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
  if (topic == "keys")
    return deck::help_text();
  if (topic == "results")
    return record::schema_text();
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
  auto topic = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(
      "help", "explain the schedules, the keys of a deck and the datasets of a result file");
  verb->add_option("TOPIC",
      *topic,
      "\"keys\", \"results\", \"schedules\" (a line each), or the name of a key or a schedule");
  verb->callback([&app, topic] { write_stdout(help(app, *topic)); });
}
}  // namespace minitaw::app

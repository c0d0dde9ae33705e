// SPDX-License-Identifier: BSD-3-Clause
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

class Help final : public Verb {
public:
  explicit Help(CLI::App& app)
      : Verb(app,
            "help",
            "explain the schedules, the keys of a deck and the datasets of a result file"),
        app_(app) {
    command_.add_option("TOPIC",
        topic_,
        "\"keys\", \"results\", \"schedules\" (a line each), or the name of a key or a schedule");
  }

  int execute(const Invocation& /*invocation*/) override {
    write_stdout(help(app_, topic_));
    return 0;
  }

private:
  const CLI::App& app_;
  std::string topic_;
};
}  // namespace

std::unique_ptr<Verb> make_help(CLI::App& app) {
  return std::make_unique<Help>(app);
}
}  // namespace minitaw::app

// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <memory>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/keys.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
struct HelpOptions {
  std::string topic;
  bool markdown = false;
};

std::string help(const CLI::App& app, const HelpOptions& options) {
  if (options.topic.empty())  // app.help() would be that of the verb `help`
    return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
  if (options.topic == "keys")
    return options.markdown ? deck::help_markdown() : deck::help_text();
  if (const deck::Setting* key = deck::find_key(options.topic))
    return deck::help_text(*key);
  std::vector<std::string> topics = {"keys", "schedules"};
  for (const deck::Setting& key : deck::keys())
    topics.push_back(key.name);
  std::string schedules;
  for (const schedule::Entry& entry : schedule::registry()) {
    if (entry.name == options.topic)
      return deck::help_text(entry);
    topics.push_back(entry.name);
    if (!entry.needs_file)
      schedules += entry.name + "\n";
  }
  if (options.topic == "schedules")
    return schedules;
  throw InputError(fmt::format("no help on \"{}\"{} (minitaw help keys lists keys and schedules)",
      options.topic,
      did_you_mean(options.topic, topics)));
}
}  // namespace

void add_help(CLI::App& app, Invocation&) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* verb = app.add_subcommand("help", "explain the schedules and the keys of a deck");
  verb->add_option("TOPIC",
      options->topic,
      "\"keys\", \"schedules\" (a line each), or the name of a key or a schedule");
  verb->add_flag("--markdown", options->markdown, "keys as the page docs/keys.md");
  verb->callback([&app, options] { write_stdout(help(app, *options)); });
}
}  // namespace minitaw::app

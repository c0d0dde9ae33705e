// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/ranges.h>
#include <memory>
#include <ranges>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/keys.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
/// The compute actions of a small step by rank and tick: F2 is of shard 2, or of micro-batch 2 in
/// pipelines.
std::string picture_of(const schedule::Entry& entry) {
  const int ranks = entry.one_rank ? 1 : 4;
  const bool passes = entry.passes_activations;
  const schedule::Program program = schedule::build({{entry.name, {}},
      topology::Groups::equal(ranks, entry.one_rank ? 1 : 2),
      passes ? 8 : ranks,
      8});
  std::string text =
      fmt::format("A step of {}{}, {}, a column a tick (number: {}; F forward, B backward{}):\n",
          counted(ranks, "rank"),
          ranks > 1 ? " in 2 groups" : "",
          counted(program.micro_batches, "micro-batch"),
          passes ? "micro-batch" : "shard",
          passes ? ", W of the weights" : "");
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    std::vector<std::string> ticks;
    for (const schedule::Action& a : program.ranks[r].actions) {
      if (!schedule::is_visit(a.kind))
        continue;
      ticks.resize(std::max<std::size_t>(ticks.size(), static_cast<std::size_t>(a.tick) + 1));
      if (std::string& cell = ticks[static_cast<std::size_t>(a.tick)]; cell.empty())
        cell = fmt::format("{}{}", schedule::name_of(a.kind)[0], passes ? a.micro_batch : a.shard);
    }
    std::string line = fmt::format("  rank {}", r);
    for (const std::string& cell : ticks)
      line += fmt::format(" {:>2}", cell.empty() ? "." : cell);
    text += line + "\n";
  }
  return text;
}

struct HelpOptions {
  std::string topic;
  bool markdown = false;
};

std::string help(const CLI::App& app, const HelpOptions& options) {
  if (options.topic == "keys")
    return options.markdown ? deck::help_markdown() : deck::help_text();
  if (options.topic == "schedules") {  // that run without a file
    const auto usual =
        std::views::filter([](const schedule::Entry& entry) { return !entry.needs_file; });
    return fmt::format("{}\n",
        fmt::join(
            schedule::registry() | usual | std::views::transform(&schedule::Entry::name), "\n"));
  }
  if (options.topic.empty())  // app.help() would be that of the verb `help`
    return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal) +
           "\nminitaw help keys lists the keys of a deck and the schedules; help seq explains one "
           "key, "
           "help tawpipe one schedule.\n";
  if (const deck::Setting* key = deck::find_key(options.topic))
    return deck::help_text(*key);
  std::vector<std::string> topics = {"keys", "schedules"};
  for (const std::string& verb : verb_names(app)) {
    if (verb == options.topic)
      return app.get_subcommand(verb)->help(app.get_name());
    topics.push_back(verb);
  }
  for (const deck::Setting& key : deck::keys())
    topics.push_back(key.name);
  for (const schedule::Entry& entry : schedule::registry()) {
    if (entry.name == options.topic && entry.needs_file)
      return deck::help_text(entry);
    if (entry.name == options.topic)
      return fmt::format(
          "{}\n{}Its actions with all transfers: minitaw plan DECK --set schedule={} --program\n",
          deck::help_text(entry),
          picture_of(entry),
          entry.name);
    topics.push_back(entry.name);
  }
  throw InputError(fmt::format("no help on \"{}\"{} (minitaw help keys lists keys and schedules)",
      options.topic,
      did_you_mean(options.topic, topics)));
}
}  // namespace

void add_help(CLI::App& app, Invocation&) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* verb = app.add_subcommand("help", "explain a verb, a schedule or the keys of a deck");
  verb->add_option("TOPIC",
      options->topic,
      "\"keys\", \"schedules\" (a line each), or the name of a key, a schedule or a verb");
  verb->add_flag("--markdown", options->markdown, "keys as the page docs/keys.md");
  verb->callback([&app, options] {
    const std::string text = help(app, *options);
    fmt::print("{}", options->markdown ? text : for_terminal(text));
  });
}
}  // namespace minitaw::app

#include <fmt/format.h>

#include <memory>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/keys.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

struct Options {
  std::string topic;
  bool markdown = false;
};

int help(const CLI::App& app, const Options& options) {
  if (options.topic == "keys") {
    fmt::print("{}", options.markdown ? deck::help_markdown() : deck::help_text());
    return 0;
  }
  if (options.topic.empty()) {
    fmt::print("{}", app.help());
    return 0;
  }
  const auto verbs =
      app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == options.topic; });
  if (verbs.empty())
    throw InputError(
        fmt::format("no help on \"{}\"; write minitaw help keys, or the name of a verb", options.topic));
  fmt::print("{}", verbs.front()->help(app.get_name()));
  return 0;
}

}  // namespace

void add_help(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("help", "explain the keys of a deck, or a verb");
  verb->add_option("TOPIC", options->topic, "\"keys\", or a verb");
  verb->add_flag("--markdown", options->markdown, "keys as the page docs/keys.md");
  verb->callback(
      [&app, &invocation, options] { invocation.action = [&app, options] { return help(app, *options); }; });
}

}  // namespace minitaw::app

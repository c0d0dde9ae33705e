#include "verb.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/keys.hpp"
#include "schedule/registry.hpp"

namespace minitaw::app {

void add_deck(CLI::App& verb, DeckOptions& options) {
  verb.add_option("DECK", options.path, "TOML file that says what to run (minitaw help keys)")->required();
  cli::add_overrides(verb, options.overrides);
}

namespace {

/// What a number may end with, and by how much that multiplies it.
using Units = std::map<std::string, double>;

/// A number from `least` to 1e18, with one of the units or without.
double parse_quantity(const std::string& option, const std::string& text, const Units& units, double least,
                      const std::string& expected) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  const auto unit = units.find(std::string(rest, end));
  if (unit != units.end()) value *= unit->second;
  if (code != std::errc() || (unit == units.end() && rest != end) || !(value >= least && value <= 1e18))
    throw InputError(fmt::format("{}: \"{}\" is not a {}", option, text, expected));
  return value;
}

}  // namespace

void add_memory(CLI::App& verb, const std::string& name, std::optional<std::uint64_t>& bytes,
                const std::string& help) {
  constexpr double K = 1024, M = K * K, G = K * M, T = K * G;
  static const Units units = {{"K", K},   {"M", M},   {"G", G},   {"T", T},
                              {"KiB", K}, {"MiB", M}, {"GiB", G}, {"TiB", T}};
  const auto store = [name, &bytes](const std::string& text) {
    bytes = static_cast<std::uint64_t>(
        parse_quantity(name, text, units, K, "memory that holds a model; write for example 80G"));
  };
  verb.add_option_function<std::string>(name, store, help)->type_name("SIZE");
}

void add_flops(CLI::App& verb, const std::string& name, double& per_second, const std::string& help) {
  const auto store = [name, &per_second](const std::string& text) {
    static const Units units = {{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
    per_second = parse_quantity(name, text, units, 1e3, "rate that a device has; write for example 400T");
  };
  verb.add_option_function<std::string>(name, store, help)->type_name("RATE");
}

ByteUnit byte_unit(double bytes, double most) {
  constexpr const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int power = 0;
  for (double left = bytes; left >= most && power < 5; ++power) left /= 1024;
  return {names[power], std::pow(1024, power)};
}

std::string size_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  const ByteUnit unit = byte_unit(value, 1024);
  return fmt::format("{:.{}f} {}", value / unit.bytes, unit.bytes == 1 ? 0 : 2, unit.name);
}

void print_error(std::string sentence, bool one_line) {
  if (one_line) std::ranges::replace(sentence, '\n', ' ');
  fmt::print(stderr, "minitaw: {}\n", sentence);
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_stdout(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno != EPIPE) throw InputError(fmt::format("standard output: {}", std::strerror(errno)));
}

namespace {

/// The compute actions of a small step, a row for each rank and a column for each tick: F2 is the forward of
/// shard 2, or of micro-batch 2 where micro-batches visit all ranks.
std::string picture_of(const schedule::Entry& entry) {
  const int ranks = entry.one_rank ? 1 : 4;
  const bool passes = entry.passes_activations;
  const schedule::Program program = schedule::build(
      {{entry.name, {}}, topology::Groups::equal(ranks, entry.one_rank ? 1 : 2), passes ? 8 : ranks, 8});
  std::string text = fmt::format(
      "A step of {} ranks{}, {} micro-batches, a column a tick (number: {}; F forward, B backward{}):\n",
      ranks, ranks > 1 ? " in 2 groups" : "", program.micro_batches, passes ? "micro-batch" : "shard",
      passes ? ", W of the weights" : "");
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    std::vector<std::string> ticks;
    for (const schedule::Action& a : program.ranks[r].actions) {
      if (!schedule::is_visit(a.kind)) continue;
      ticks.resize(std::max<std::size_t>(ticks.size(), static_cast<std::size_t>(a.tick) + 1));
      if (std::string& cell = ticks[static_cast<std::size_t>(a.tick)]; cell.empty())
        cell = fmt::format("{}{}", schedule::name_of(a.kind)[0], passes ? a.micro_batch : a.shard);
    }
    std::string line = fmt::format("  rank {}", r);
    for (const std::string& cell : ticks) line += fmt::format(" {:>2}", cell.empty() ? "." : cell);
    text += line + "\n";
  }
  return text;
}

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
    // app.help() would be that of the verb `help`
    fmt::print("{}\nminitaw help keys lists the keys of a deck and the schedules; help seq explains one key, "
               "help tawpipe one schedule.\n",
               app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
    return 0;
  }
  if (const deck::Key* key = deck::find_key(options.topic)) {
    fmt::print("{}", deck::help_text(*key));
    return 0;
  }
  const auto schedule = std::ranges::find(schedule::registry(), options.topic, &schedule::Entry::name);
  if (schedule != schedule::registry().end()) {
    fmt::print("{}\n{}Its actions with all transfers: minitaw plan DECK --set schedule={} --program\n",
               deck::help_text(*schedule), picture_of(*schedule), schedule->name);
    return 0;
  }
  const auto verbs =
      app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == options.topic; });
  if (verbs.empty()) {
    std::vector<std::string> topics = {"keys"};
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
      topics.push_back(known->get_name());
    for (const deck::Key& key : deck::keys()) topics.push_back(key.name);
    for (const schedule::Entry& entry : schedule::registry()) topics.push_back(entry.name);
    throw InputError(
        fmt::format("no help on \"{}\"; did you mean \"{}\"? (minitaw help keys lists keys and schedules)",
                    options.topic, nearest(options.topic.substr(0, 64), topics)));
  }
  fmt::print("{}", verbs.front()->help(app.get_name()));
  return 0;
}

}  // namespace

void add_help(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("help", "explain a verb, a schedule or the keys of a deck");
  verb->add_option("TOPIC", options->topic, "\"keys\", or the name of a key, a schedule or a verb");
  verb->add_flag("--markdown", options->markdown, "keys as the page docs/keys.md");
  verb->callback([&app, &invocation, options] { invocation.code = help(app, *options); });
}

}  // namespace minitaw::app

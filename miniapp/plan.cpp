#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "plan_case.hpp"
#include "plan_fit.hpp"
#include "schedule/text.hpp"
#include "topology/devices.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

struct Options {
  DeckOptions deck;
  bool json = false, program = false;
  std::string device_memory;  ///< as given; empty: that of the device of this machine, if any
};

/// Memory of one device; nothing if there is none and none was named.
std::optional<std::uint64_t> memory_of(const Options& options) {
  if (!options.device_memory.empty()) return parse_memory(options.device_memory);
  try {
    const auto devices = topology::visible_devices();
    return devices.empty() ? std::nullopt : std::optional(devices.front().bytes);
  } catch (const InputError&) {
    return std::nullopt;  // planning needs no device
  }
}

void print_json(const deck::Deck& deck, std::optional<std::uint64_t> memory) {
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const deck::Case& c : deck.cases) {
    const CasePlan plan = plan_case(c);
    cases.push_back(to_json(plan));
    if (memory) cases.back()["device"] = to_json(fit(plan, *memory));
  }
  const nlohmann::ordered_json all = {{"notes", deck.notes}, {"cases", cases}};
  fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_text(const deck::Deck& deck, std::optional<std::uint64_t> memory) {
  for (const std::string& note : deck.notes) fmt::print("# {}\n", note);
  const int total = static_cast<int>(deck.cases.size());
  for (int i = 0; i < total; ++i) {
    const CasePlan plan = plan_case(deck.cases[static_cast<std::size_t>(i)]);
    fmt::print("{}{}{}", i == 0 ? "" : "\n", to_text(plan, i, total),
               memory ? to_text(fit(plan, *memory)) : "");
  }
}

void print_program(const deck::Deck& deck) {
  if (deck.cases.size() != 1)
    throw InputError(
        fmt::format("--program: the deck has {} cases, the program of one can be printed; choose it with "
                    "--set",
                    deck.cases.size()));
  fmt::print("{}", schedule::to_text(plan_case(deck.cases.front()).program));
}

int plan(const Options& options) {
  const deck::Deck deck = deck::read_deck(options.deck.path, options.deck.overrides,
                                          {.ranks = 0, .node_sizes = {}, .planning = true});
  const auto memory = memory_of(options);
  if (options.json) print_json(deck, memory);
  else if (options.program) print_program(deck);
  else print_text(deck, memory);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "plan", "bytes, memory and idle ticks of every case, without running it; needs no MPI job");
  add_deck(*verb, options->deck);
  CLI::Option* json = verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--program", options->program, "the actions of every rank of the one case that is left")
      ->excludes(json);
  verb->add_option(
          "--device-memory", options->device_memory,
          "memory of one device, for example 80G: says whether each case fits and the largest S that does "
          "(default: the device of this machine, if there is one)")
      ->type_name("SIZE");
  verb->callback([&invocation, options] { invocation.action = [options] { return plan(*options); }; });
}

}  // namespace minitaw::app

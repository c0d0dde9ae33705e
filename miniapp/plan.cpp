#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "plan_case.hpp"
#include "schedule/program.hpp"
#include "topology/devices.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

struct Options {
  DeckOptions deck;
  bool json = false, program = false;
  std::string device_memory;  ///< as given; empty: that of the device of this machine, if any
  int adapters = 1;
  TimelineOptions timeline;
  std::string flops, inside, between, nic;  ///< as given; empty: the default
};

schedule::Machine machine_of(const Options& options) {
  schedule::Machine machine;
  const auto set = [](double& rate, const std::string& option, const std::string& text, const auto& parse,
                      const char* unit, const char* meant) {
    if (text.empty()) return;
    rate = parse(option, text);
    if (rate < 1e3)
      throw InputError(fmt::format("{}: {} {} is less than any machine does; did you mean {}{}?", option,
                                   text, unit, text, meant));
  };
  set(machine.flops, "--flops", options.flops, parse_rate, "FLOP/s", "T");
  set(machine.inside, "--inside", options.inside, parse_rate, "bytes/s", "G");
  set(machine.between, "--between", options.between, parse_rate, "bytes/s", "G");
  set(machine.nic, "--nic", options.nic, parse_link_rate, "bytes/s", "mbit");
  return machine;
}

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

/// Programs of many ranks take a while: says which one is under way.
CasePlan planned(const deck::Deck& deck, std::size_t i, const schedule::Machine& machine) {
  const deck::Case& c = deck.cases[i];
  if (c.ranks >= 512)
    fmt::print(stderr, "planning case {} of {}: {} on {} ranks, {} micro-batches\n", i + 1, deck.cases.size(),
               c.schedule, c.ranks, c.micro_batches);
  return plan_case(c, machine);
}

void print_json(const deck::Deck& deck, const schedule::Machine& machine,
                std::optional<std::uint64_t> memory) {
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < deck.cases.size(); ++i) {
    const CasePlan plan = planned(deck, i, machine);
    cases.push_back(to_json(plan));
    if (memory) cases.back()["device"] = to_json(fit(plan, *memory));
  }
  const nlohmann::ordered_json all = {
      {"notes", deck.notes}, {"assumed_per_rank", to_json(machine)}, {"cases", cases}};
  fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// The table first, although it needs all cases: programs are too large to keep.
void print_text(const deck::Deck& deck, const schedule::Machine& machine,
                std::optional<std::uint64_t> memory) {
  for (const std::string& note : deck.notes) fmt::print("# {}\n", note);
  std::vector<PlanRow> rows;
  std::string details;
  for (int i = 0; i < static_cast<int>(deck.cases.size()); ++i) {
    const CasePlan plan = planned(deck, static_cast<std::size_t>(i), machine);
    rows.push_back(row_of(plan, i));
    details += "\n" + to_text(plan, i) + (memory ? to_text(fit(plan, *memory)) : "");
  }
  fmt::print("{}{}", to_text(rows), details);
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
  const deck::Deck deck =
      deck::read_deck(options.deck.path, options.deck.overrides,
                      {.ranks = 0, .node_sizes = {}, .planning = true, .adapters = options.adapters});
  const schedule::Machine machine = machine_of(options);
  const auto memory = memory_of(options);
  write_timeline(options.timeline, deck, machine);
  if (options.json) print_json(deck, machine, memory);
  else if (options.program) print_program(deck);
  else print_text(deck, machine, memory);
  return 0;
}

void add_machine(CLI::App& verb, Options& options) {
  const schedule::Machine machine;
  verb.add_option("--flops", options.flops,
                  fmt::format("assumed FLOP/s of a rank ({:.0f}T: 40% of an H100 SXM in dense bf16)",
                              machine.flops * 1e-12))
      ->type_name("RATE");
  verb.add_option("--inside", options.inside,
                  fmt::format("assumed bytes/s of a rank inside its group, one direction ({:.0f}G: NVLink of "
                              "an H100 SXM)",
                              machine.inside * 1e-9))
      ->type_name("RATE");
  verb.add_option("--between", options.between,
                  fmt::format("assumed bytes/s of a rank to other groups, one direction ({:.0f}G: an adapter "
                              "of 400 Gbit/s for each rank, as in a DGX H100)",
                              machine.between * 1e-9))
      ->type_name("RATE");
  verb.add_option("--nic", options.nic,
                  "rate of the adapter that all ranks of a group share, each direction: 12.5M in bytes/s, or "
                  "100mbit; says how long a step takes at least for what passes the busiest one")
      ->type_name("RATE");
  verb.add_option("--adapters", options.adapters, "network adapters of each node: what rails=auto becomes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "plan", "bytes, memory and idle time of every case, without running it; needs no MPI job");
  add_deck(*verb, options->deck);
  CLI::Option* json = verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--program", options->program, "the actions of every rank of the one case that is left")
      ->excludes(json);
  verb->add_option(
          "--device-memory", options->device_memory,
          "memory of one device, for example 80G: says whether each case fits and the largest S that does "
          "(default: the device of this machine, if there is one)")
      ->type_name("SIZE");
  verb->add_option("--timeline", options->timeline.path,
                   "write when every action of a planned step runs, for scripts/timeline")
      ->type_name("FILE.json");
  verb->add_option("--case", options->timeline.cases,
                   "what --timeline holds: a number of the table, or 0,2 or all (default: 0)")
      ->type_name("N");
  verb->add_option(
          "--costs", options->timeline.costs,
          "measured durations of the actions of --timeline, as scripts/timeline --planned makes them")
      ->type_name("FILE.json");
  add_machine(*verb, *options);
  verb->callback([&invocation, options] { invocation.action = [options] { return plan(*options); }; });
}

}  // namespace minitaw::app

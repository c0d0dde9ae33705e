// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include "base/error.hpp"
#include "case_plan.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "schedule/orders.hpp"
#include "schedule/validate.hpp"
#include "topology/devices.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
using schedule::Program;

void write_csv(const Program& program, const Case& c, const std::string& path) {
  if (!schedule::entry_of(request_of(c).spec.name).passes_activations)
    throw InputError(fmt::format(
        "--csv: {} passes no activations from stage to stage; plan a pipeline", c.schedule));
  if (program.slices > 1)
    throw InputError(
        fmt::format("--csv: the files have no slices, which {} has; use slices = 1", c.schedule));
  std::ofstream file(path, std::ios::binary);
  if (!(file << schedule::to_torch_csv(program)).flush())
    throw InputError(fmt::format("--csv: {} cannot be written", path));
}

struct PlanOptions {
  DeckOptions deck;
  bool json = false, program = false;
  std::string csv;         ///< file for the order of the only case, a pipeline
  AssumedMachine machine;  ///< without `device_memory`: the device of this machine, if any
};

constexpr int few = 4;  ///< cases, all told in detail on a terminal

/// Bytes of a device of this machine; nothing if there is none.
std::optional<std::uint64_t> memory_of_device() {
  try {
    const auto devices = topology::visible_devices();
    return devices.empty() ? std::nullopt : std::optional(devices.front().bytes);
  } catch (const InputError&) {
    return std::nullopt;  // planning needs no device
  }
}

/// In the order of the deck.
std::vector<CasePlan> plan_all(const deck::Deck& deck, AssumedMachine machine) {
  constexpr int many_ranks = 512;  // looking for what makes them fit takes minutes
  if (!machine.device_memory)
    machine.device_memory = memory_of_device();
  std::vector<CasePlan> plans;
  std::optional<schedule::Request> built;
  Program program;
  for (const Case& c : deck.cases) {
    const schedule::Request request = request_of(c);
    if (built != request)
      program = schedule::build_valid(request);
    built = request;
    plans.push_back(plan_case(c, plans.size(), program, machine));
  }
  for (CasePlan& plan : plans)
    if (plan.device && !plan.device->fits() &&
        (std::ssize(plans) <= few || plan.settings.ranks < many_ranks))
      plan.device->remedies = remedies_of(plan.settings, plan.device->available);
  return plans;
}

/// The program of the only case, as text or for PyTorch.
void write_program(const deck::Deck& deck, const PlanOptions& options) {
  if (deck.cases.size() + deck.unused.size() != 1)
    throw InputError(fmt::format(
        "{}: the deck has {} cases, the program of one can be printed; choose it with --set",
        options.program ? "--program" : "--csv",
        deck.cases.size() + deck.unused.size()));
  const Case& c = deck.cases.front();
  const Program program = schedule::build_valid(request_of(c));
  if (options.program)
    write_stdout(schedule::to_text(program));
  if (!options.csv.empty())
    write_csv(program, c, options.csv);
}

Json to_json(
    const deck::Deck& deck, const std::vector<CasePlan>& plans, const schedule::Device& assumed) {
  return {{"notes", deck.notes},
      {"assumed_per_rank", {{"flops", assumed.flops}, {"memory_bytes_per_s", assumed.memory}}},
      {"cases", list_of(plans, [](const CasePlan& plan) { return to_json(plan); })}};
}

/// The table, and each case in detail; not on a terminal, where there are more than a few.
void print(const deck::Deck& deck, const std::vector<CasePlan>& plans) {
  const bool narrow = isatty(STDOUT_FILENO) != 0;
  std::string text;
  for (const std::string& note : deck.notes)
    text += fmt::format("# {}\n", note);
  text += table_text(plans, narrow);
  if (narrow && std::ssize(plans) > few)
    text += fmt::format("# choose up to {} cases with --set for details\n", few);
  else
    for (const CasePlan& plan : plans)
      text += "\n" + to_text(plan);
  write_stdout(text);
}

int plan(const Invocation& invocation, const PlanOptions& options) {
  const deck::Deck deck = deck::read_deck(options.deck.path,
      options.deck.overrides,
      {.ranks = 0, .node_sizes = {}, .planning = true, .adapters = options.machine.adapters});
  if (options.program || !options.csv.empty()) {
    write_program(deck, options);
    return 0;
  }
  const std::vector<CasePlan> plans = plan_all(deck, options.machine);
  if (options.json)
    write_json(invocation, to_json(deck, plans, options.machine.device));
  else
    print(deck, plans);
  return 0;
}
}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* verb = app.add_subcommand(
      "plan", "bytes, memory and idle time of every case, without running it; needs no MPI job");
  add_deck(*verb, options->deck);
  CLI::Option* json =
      verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag(
          "--program", options->program, "the actions of every rank of the one case that is left")
      ->excludes(json);
  verb->add_option("--csv", options->csv, "write the order of a pipeline, for PyTorch's _load_csv")
      ->type_name("FILE")
      ->excludes(json);
  add_memory(*verb,
      "--device-memory",
      options->machine.device_memory,
      "memory of one device, for example 80G: says whether each case fits and the largest S that "
      "does (default: the device of this machine, if there is one)");
  add_flops(*verb,
      "--flops",
      options->machine.device.flops,
      fmt::format("assumed rate of a rank ({:.0f}e12: 40% of an H100 SXM in dense bf16)",
          options->machine.device.flops * 1e-12));
  verb->add_option("--adapters",
          options->machine.adapters,
          "network adapters of each node: what rails=auto becomes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->callback([&invocation, options] { invocation.code = plan(invocation, *options); });
}
}  // namespace minitaw::app

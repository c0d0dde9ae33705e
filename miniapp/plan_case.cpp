#include "plan_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>

#include "base/error.hpp"
#include "deck/deck.hpp"
#include "deck/value.hpp"
#include "model/plan.hpp"
#include "schedule/validate.hpp"
#include "trace/timeline.hpp"

namespace minitaw::app {

int CasePlan::worst_rank() const {
  const auto at = std::ranges::max_element(memory, {}, &schedule::Footprint::total);
  return static_cast<int>(at - memory.begin());
}

CasePlan::Busiest CasePlan::busiest(std::uint64_t (schedule::ByteMatrix::*direction)(const topology::Groups&,
                                                                                     int) const) const {
  Busiest found;
  for (int group = 0; group < settings.groups.count(); ++group) {
    const std::uint64_t here = (bytes.*direction)(settings.groups, group);
    if (here > found.bytes) found = {group, here};
  }
  return found;
}

std::optional<double> CasePlan::nic_seconds() const {
  if (machine.nic == 0) return std::nullopt;
  const std::uint64_t most =
      std::max(busiest(&schedule::ByteMatrix::leaving).bytes, busiest(&schedule::ByteMatrix::entering).bytes);
  return static_cast<double>(most) / machine.nic;
}

std::vector<schedule::Footprint> memory_of(const deck::Case& c, const schedule::Program& program,
                                           const model::Layout& layout) {
  return c.micro_batch_per_rank.empty() ? schedule::memory(program, layout)
                                        : schedule::memory(program, layout, c.micro_batch_per_rank);
}

schedule::Costs costs_of(const deck::Case& c, const schedule::Program& program, const model::Layout& layout,
                         const schedule::Machine& machine) {
  return c.micro_batch_per_rank.empty()
             ? schedule::costs_of(program, layout, machine)
             : schedule::costs_of(program, layout, machine, c.micro_batch_per_rank);
}

CasePlan plan_case(const deck::Case& c, const schedule::Machine& machine) {
  schedule::Program program = schedule::build(deck::request_of(c));
  schedule::require_valid(program);
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  schedule::ByteMatrix bytes = schedule::bytes(program, layout);
  const schedule::MessageCounts messages = schedule::messages(program);
  schedule::Ticks ticks = schedule::ticks(program);
  std::vector<schedule::Footprint> memory = memory_of(c, program, layout);
  const schedule::Costs costs = schedule::free_transfers(costs_of(c, program, layout, machine));
  schedule::Idle idle = schedule::idle(program, schedule::simulate(program, costs));
  return {c,       std::move(program), std::move(bytes), messages, std::move(ticks), std::move(memory),
          machine, std::move(idle)};
}

namespace {

constexpr std::uint64_t GiB = std::uint64_t{1} << 30;
/// Context of the driver, code of the kernels, buffers of NCCL.
constexpr std::uint64_t context_bytes = GiB;
constexpr std::int64_t seq_step = 128;
constexpr std::int64_t longest_seq = std::int64_t{1} << 26;

std::uint64_t worst_total(const std::vector<schedule::Footprint>& memory) {
  std::uint64_t worst = 0;
  for (const schedule::Footprint& rank : memory) worst = std::max<std::uint64_t>(worst, rank.total());
  return worst;
}

std::uint64_t needed_at(const CasePlan& plan, std::int64_t seq) {
  model::Shape shape = plan.settings.shape;
  shape.seq = seq;
  const model::Layout layout = model::make_layout(shape, schedule::cut_of(plan.program));
  return worst_total(memory_of(plan.settings, plan.program, layout)) + context_bytes +
         model::library_estimate(shape);
}

bool fits_at(const CasePlan& plan, std::int64_t seq, std::uint64_t available) {
  try {
    return needed_at(plan, seq) <= available;
  } catch (const InputError&) {
    return false;  // larger than any buffer can be
  }
}

/// Memory grows with S, so halving finds the last that fits.
std::int64_t largest_seq(const CasePlan& plan, std::uint64_t available) {
  std::int64_t fitting = 0, beyond = longest_seq / seq_step + 1;
  while (beyond - fitting > 1) {
    const std::int64_t middle = fitting + (beyond - fitting) / 2;
    (fits_at(plan, middle * seq_step, available) ? fitting : beyond) = middle;
  }
  return fitting * seq_step;
}

}  // namespace

Fit fit(const CasePlan& plan, std::uint64_t available) {
  return {available, worst_total(plan.memory), context_bytes + model::library_estimate(plan.settings.shape),
          largest_seq(plan, available)};
}

std::uint64_t parse_memory(const std::string& text, const std::string& option) {
  const auto refuse = [&] {
    return InputError(fmt::format("{}: \"{}\" is not a size; write for example 80G", option, text));
  };
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || !(value > 0)) throw refuse();
  const std::string unit(rest, end);
  for (const auto& [prefix, power] : {std::pair{'K', 10}, {'M', 20}, {'G', 30}, {'T', 40}})
    if (unit == std::string(1, prefix) || unit == fmt::format("{}iB", prefix))
      value *= static_cast<double>(std::uint64_t{1} << power);
    else if (!unit.empty() && unit.front() == prefix) throw refuse();
  if (!unit.empty() && std::string("KMGT").find(unit.front()) == std::string::npos) throw refuse();
  if (value > 1e18) throw refuse();
  if (unit.empty() && value < 1 << 20)
    throw InputError(fmt::format("{}: {} bytes hold no model; did you mean {}G?", option, value, text));
  return static_cast<std::uint64_t>(value);
}

std::string to_text(const Fit& fit) {
  const std::string largest =
      fit.largest_seq > 0 ? fmt::format("the largest S that fits is {}", fit.largest_seq) : "no S fits";
  return fmt::format("  device           {}: worst rank needs {} and about {} for libraries, of {}; {}\n",
                     fit.fits() ? "fits" : "DOES NOT FIT", size_text(static_cast<double>(fit.arena)),
                     size_text(static_cast<double>(fit.libraries)),
                     size_text(static_cast<double>(fit.available)), largest);
}

nlohmann::ordered_json to_json(const Fit& fit) {
  return {{"available_bytes", fit.available},
          {"arena_bytes", fit.arena},
          {"libraries_estimate_bytes", fit.libraries},
          {"fits", fit.fits()},
          {"largest_seq", fit.largest_seq}};
}

namespace {

/// A drawing of more is of no use to anybody.
constexpr std::size_t most_actions = 1'000'000;

int parse_case(std::string_view text, int cases) {
  int number = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || rest != text.data() + text.size() || number < 0 || number >= cases)
    throw InputError(fmt::format("--case: \"{}\" is none of the deck's cases; they are numbered 0 to {}",
                                 text, cases - 1));
  return number;
}

std::size_t actions_of(const schedule::Program& program) {
  std::size_t actions = 0;
  for (const schedule::RankProgram& rank : program.ranks) actions += rank.actions.size();
  return actions;
}

std::string title_of(const CasePlan& plan, const std::vector<std::vector<schedule::Span>>& spans,
                     bool measured) {
  const deck::Case& c = plan.settings;
  const std::string times = fmt::format("step {:.4g} ms", schedule::idle(plan.program, spans).seconds * 1e3);
  if (measured)
    return fmt::format(
        "{}: {}, S = {}, B = {}, M = {}\n{}; every action takes its measured mean; transfers do "
        "not slow each other down",
        c.schedule, ranks_text(c), c.shape.seq, deck::micro_batch_text(c), c.micro_batches, times);
  return fmt::format(
      "{}: {}\n{} blocks, H = {}, S = {}, B = {}, M = {}, {}; {}, {:.4g} ms if transfers took no "
      "time, ranks then idle {:.1f}%\nassumed of each rank: {}; transfers do not slow each other down",
      c.schedule, ranks_text(c), c.shape.layers, c.shape.hidden, c.shape.seq, deck::micro_batch_text(c),
      c.micro_batches, name_of(c.shape.dtype), times, plan.idle.seconds * 1e3, 100 * plan.idle.share(),
      to_text(plan.machine));
}

trace::Timeline timeline_of(const deck::Case& c, const schedule::Machine& machine, const std::string& costs) {
  const CasePlan plan = plan_case(c, machine);
  if (const std::size_t actions = actions_of(plan.program); actions > most_actions)
    throw InputError(fmt::format("--timeline: this step has {} actions, and {} can be drawn; take fewer "
                                 "ranks, layers or micro_batches",
                                 actions, most_actions));
  if (!costs.empty()) {
    const auto spans = schedule::simulate(
        plan.program, trace::read_costs(deck::read_text(costs), costs, plan.program.groups));
    return trace::make_timeline(plan.program, spans, title_of(plan, spans, true), false);
  }
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(plan.program));
  const auto spans = schedule::simulate(plan.program, costs_of(c, plan.program, layout, machine));
  return trace::make_timeline(plan.program, spans, title_of(plan, spans, false), false);
}

}  // namespace

std::vector<int> chosen_cases(const TimelineOptions& options, int cases) {
  if (options.path.empty()) {
    if (!options.cases.empty()) throw InputError("--case: it chooses what --timeline FILE holds");
    if (!options.costs.empty()) throw InputError("--costs: they are for --timeline FILE");
    return {};
  }
  if (!options.path.ends_with(".json"))
    throw InputError(
        fmt::format("--timeline: \"{}\" must end in .json; scripts/timeline draws it", options.path));
  if (options.cases.empty()) return {0};
  std::vector<int> chosen;
  if (options.cases == "all")
    for (int i = 0; i < cases; ++i) chosen.push_back(i);
  else
    for (std::size_t begin = 0; begin <= options.cases.size();) {
      const std::size_t end = std::min(options.cases.find(',', begin), options.cases.size());
      chosen.push_back(parse_case(std::string_view(options.cases).substr(begin, end - begin), cases));
      begin = end + 1;
    }
  return chosen;
}

void write_timeline(const TimelineOptions& options, const deck::Deck& deck,
                    const schedule::Machine& machine) {
  std::vector<trace::Timeline> timelines;
  for (const int i : chosen_cases(options, static_cast<int>(deck.cases.size())))
    timelines.push_back(timeline_of(deck.cases[static_cast<std::size_t>(i)], machine, options.costs));
  if (timelines.empty()) return;
  std::ofstream file(options.path, std::ios::binary);
  file << trace::to_json(timelines);
  file.close();
  if (!file) throw InputError(fmt::format("--timeline: {} cannot be written", options.path));
}

double parse_rate(const std::string& option, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  const std::string unit(rest, end);
  for (const auto& [prefix, factor] : {std::pair{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}})
    if (unit == prefix) value *= factor;
  const bool known =
      unit.empty() || (unit.size() == 1 && std::string("KMGTP").find(unit) != std::string::npos);
  if (code != std::errc() || !known || !(value > 0) || !std::isfinite(value) || value > 1e30)
    throw InputError(
        fmt::format("{}: \"{}\" is not a rate; write for example 400T, 50G or 1e10", option, text));
  return value;
}

double parse_link_rate(const std::string& option, const std::string& text) {
  const std::size_t bits = text.find("bit");
  if (bits == std::string::npos || bits + 3 != text.size()) return parse_rate(option, text);
  std::string number = text.substr(0, bits);
  if (number.empty() || std::string("KMGTP").find(number.back()) != std::string::npos)
    return parse_rate(option, text);  // says what is wrong
  if (std::string("kmgt").find(number.back()) != std::string::npos)
    number.back() = static_cast<char>(std::toupper(static_cast<unsigned char>(number.back())));
  return parse_rate(option, number) / 8;
}

std::string to_text(const schedule::Machine& machine) {
  return fmt::format("{:.4g} TFLOP/s, {:.4g} GB/s inside its group, {:.4g} GB/s to other groups",
                     machine.flops * 1e-12, machine.inside * 1e-9, machine.between * 1e-9);
}

}  // namespace minitaw::app

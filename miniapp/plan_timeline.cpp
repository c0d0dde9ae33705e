#include "plan_timeline.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "deck/sequences.hpp"
#include "plan_case.hpp"
#include "plan_table.hpp"
#include "timeline_file.hpp"

namespace minitaw::app {

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

std::string title_of(const CasePlan& plan, const std::vector<std::vector<schedule::Span>>& spans) {
  const deck::Case& c = plan.settings;
  const schedule::Idle idle = schedule::idle(plan.program, spans);
  return fmt::format(
      "{}: {}\n{} blocks, H = {}, S = {}, B = {}, M = {}, {}; step {:.4g} ms, of which "
      "compute lanes stand still {:.1f}%\nassumed of each rank: {}; transfers do not slow each other down",
      c.schedule, ranks_text(c), c.shape.layers, c.shape.hidden, c.shape.seq, deck::micro_batch_text(c),
      c.micro_batches, name_of(c.shape.dtype), idle.seconds * 1e3, 100 * idle.share(), to_text(plan.machine));
}

trace::Timeline timeline_of(const deck::Case& c, const schedule::Machine& machine) {
  const CasePlan plan = plan_case(c, machine);
  if (const std::size_t actions = actions_of(plan.program); actions > most_actions)
    throw InputError(fmt::format("--timeline: this step has {} actions, and {} can be drawn; take fewer "
                                 "ranks, layers or micro_batches",
                                 actions, most_actions));
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(plan.program));
  const auto spans = schedule::simulate(plan.program, costs_of(c, plan.program, layout, machine));
  return trace::make_timeline(plan.program, spans, title_of(plan, spans), false);
}

}  // namespace

std::vector<int> chosen_cases(const TimelineOptions& options, int cases) {
  if (options.path.empty()) {
    if (!options.cases.empty()) throw InputError("--case: it chooses what --timeline FILE draws");
    return {};
  }
  require_timeline_name(options.path);
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
    timelines.push_back(timeline_of(deck.cases[static_cast<std::size_t>(i)], machine));
  if (timelines.empty()) return;
  write_timelines(options.path, timelines);
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

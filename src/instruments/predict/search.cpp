// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/search.hpp"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include "base/error.hpp"
#include "deck/deck.hpp"

namespace minitaw::predict {
namespace {
std::vector<std::string> specs_for(const Machine& machine) {
  std::map<std::string, std::vector<std::string>> forms = {
      {"prefetch", {":prefetch=1", ":prefetch=2"}},
      {"chunks", {":chunks=1", ":chunks=2", ":chunks=4"}},
      {"slices", {":slices=1", ":slices=4", ":slices=16"}},
      {"shards", {":shards=rank", ":shards=block"}},
      {"hierarchical", {":hierarchical=off", ":hierarchical=on"}},
      // What ranks may keep in a step: nothing, what users know by names of their own (ZeRO++ hpZ,
      // FSDP's reshard_after_forward = False, ZeRO-2, ZeRO-1), and the fewest bytes between groups.
      {"reshard",
          {"",
              ":reshard=group",
              ":reshard=none",
              ":fetch=step:reshard=none",
              ":fetch=step:reduce=none:reshard=none",
              ":fetch=step:reduce=group:reshard=group"}}};
  if (machine.adapters > 1)
    forms["rails"] = {":rails=1", fmt::format(":rails={}", machine.adapters)};
  std::vector<std::string> all;
  for (const schedule::Entry& entry : schedule::registry()) {
    if (entry.one_rank || entry.needs_file)
      continue;
    std::vector<std::string> specs = {entry.name};
    for (const schedule::OptionDoc& option : entry.options)
      if (const auto given = forms.find(option.name); given != forms.end()) {
        std::vector<std::string> longer;
        for (const std::string& spec : specs)
          for (const std::string& form : given->second)
            longer.push_back(spec + form);
        specs = longer;
      }
    for (const std::string& spec : specs)
      all.push_back(schedule::to_text(schedule::parse_spec(spec)));
  }
  return all;
}

/// Numbers of ranks that may share a sequence: powers of two that divide groups and sequence.
std::vector<int> sharers_for(const Case& base) {
  std::vector<int> all = {1};
  const int smallest = std::ranges::min(base.groups.sizes());
  while (2 * all.back() <= smallest && base.shape.seq % (4 * all.back()) == 0)
    all.push_back(2 * all.back());
  return all;
}

bool is_possible(const Case& c) {
  try {
    model::check(c.shape);
  } catch (const InputError&) {  // a slice would have no token
    return false;
  }
  return schedule::is_buildable(request_of(c));
}

/// Candidates of the same program are neighbours: recomputation changes sizes and times alone.
/// Ranks share sequences where a micro-batch is one.
std::vector<Candidate> candidates(const Case& base, const Machine& machine) {
  const std::int64_t sequences = sequences_of_step(base);
  std::vector<topology::Groups> groupings = {base.groups};
  if (base.groups.count() > 1 && base.ranks % (2 * base.groups.count()) == 0)
    groupings.push_back(topology::Groups::equal(base.ranks, 2 * base.groups.count()));
  std::vector<Candidate> all;
  Case c = base;
  for (const std::string& spec : specs_for(machine))
    for (c.replicas = 1; c.replicas <= c.ranks; ++c.replicas)
      for (const topology::Groups& groups : groupings)
        for (std::int64_t b = 1; b <= sequences; b *= 2)
          for (const int sharers : b == 1 ? sharers_for(base) : std::vector{1}) {
            if (c.ranks % c.replicas != 0 || sequences % b != 0)
              continue;
            set_schedule(c, spec);
            c.groups = groups;
            c.shape.micro_batch = b;
            c.micro_batches = sequences / b;
            c.shape.context = {0, sharers};
            if (!is_possible(c))
              continue;  // too few layers, micro-batches that do not divide, or groups
            for (const model::Recompute recompute : {model::Recompute::block,
                     model::Recompute::keep_attention,
                     model::Recompute::none}) {
              c.shape.recompute = recompute;
              all.push_back({c});
            }
          }
  return all;
}

/// About the number of actions of a replica, up to a factor.
double size_of(const Candidate& candidate) {
  const Case& c = candidate.asked;
  return 1.0 * (c.micro_batches + c.ranks) / c.replicas * c.shape.layers;
}
}  // namespace

std::vector<Candidate> search(
    const Case& base, const Machine& machine, std::size_t best, double seconds) {
  constexpr const char* late = "were not tried in time";
  const auto begin = std::chrono::steady_clock::now();
  const auto is_over = [&](double time) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return passed.count() >= time;
  };
  std::vector<Candidate> all = candidates(base, machine);
  Planner planner;
  // Small programs first; candidates of one program are neighbours.
  std::ranges::stable_sort(all, {}, size_of);
  for (Candidate& c : all)
    if (is_over(0.5 * seconds))
      c.why = late;
    else if (c.floor = floor_of(planner.plan(c.asked), machine); !machine.has_room(c.floor.memory))
      c.why = "do not fit";

  // Low bounds first. Once enough candidates are faster than the next bound, the rest has lost.
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.floor.seconds(); });
  std::set<std::pair<std::string, double>> steps;
  std::multiset<double> times;  // of steps, seconds
  for (Candidate& c : all) {
    if (!c.why.empty())
      continue;
    if (times.size() >= best && c.floor.seconds() >= *std::next(times.begin(), best - 1)) {
      c.why = "cannot be faster";
      continue;
    }
    if (is_over(seconds)) {
      c.why = late;
      continue;
    }
    Prediction prediction = predict(planner.plan(c.asked), machine);
    prediction.spans = {};
    Case in_groups = c.asked;
    in_groups.groups = base.groups;  // whose number pipelines and flat FSDP do not know
    if (!steps.emplace(deck::identity(in_groups), prediction.seconds).second) {
      c.why = "differ in groups alone";
      continue;
    }
    times.insert(prediction.seconds);
    c.prediction = std::move(prediction);
  }
  std::ranges::stable_sort(
      all, {}, [](const Candidate& c) { return c.prediction ? c.prediction->seconds : 1e300; });
  return all;
}
}  // namespace minitaw::predict

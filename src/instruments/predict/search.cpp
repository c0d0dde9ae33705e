// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/search.hpp"
#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>
#include "base/error.hpp"
#include "base/range.hpp"
#include "deck/deck.hpp"

namespace minitaw::predict {
namespace {
/// What ranks may keep in a step: nothing, what users know by names of their own (ZeRO++ hpZ,
/// FSDP's reshard_after_forward = False, ZeRO-2, ZeRO-1), and the fewest bytes between groups.
constexpr std::array forms_of_keeping = {"",
    ":reshard=group",
    ":reshard=none",
    ":fetch=step:reshard=none",
    ":fetch=step:reduce=none:reshard=none",
    ":fetch=step:reduce=group:reshard=group"};

std::vector<std::string> specs_for(const Machine& machine) {
  std::map<std::string, std::vector<std::string>> values = {{"prefetch", {"1", "2"}},
      {"chunks", {"1", "2", "4"}},
      {"slices", {"1", "4", "16"}},
      {"shards", {"rank", "block"}},
      {"hierarchical", {"off", "on"}}};
  if (machine.adapters > 1)
    values["rails"] = {"1", std::to_string(machine.adapters)};
  std::vector<std::string> specs;
  for (const schedule::Entry& entry : schedule::registry()) {
    if (entry.one_rank || entry.needs_file)
      continue;
    std::vector<std::string> forms = {entry.name};
    for (const schedule::OptionDoc& option : entry.options) {
      std::vector<std::string> more;
      for (const std::string& form : forms)
        for (const std::string& value : values[option.name])
          more.push_back(form + ":" + option.name + "=" + value);
      if (!more.empty())
        forms = more;
    }
    const bool keeps = std::ranges::count(entry.options, "reshard", &schedule::OptionDoc::name) > 0;
    for (const std::string& form : forms)
      for (const char* kept : forms_of_keeping)
        if (keeps || *kept == 0)
          specs.push_back(schedule::to_text(schedule::parse_spec(form + kept)));
  }
  return specs;
}

/// Numbers of ranks that may share a sequence: powers of two that divide groups and sequence.
std::vector<int> sharers_for(const Case& base) {
  std::vector<int> all = {1};
  const int sizes = std::ranges::min(base.groups.sizes());
  while (2 * all.back() <= sizes && base.shape.seq % (4 * all.back()) == 0)
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
  const auto add = [&](Case c) {
    if (!is_possible(c))
      return;  // too few layers, micro-batches that do not divide, or groups
    for (const model::Recompute recompute :
        {model::Recompute::block, model::Recompute::keep_attention, model::Recompute::none}) {
      c.shape.recompute = recompute;
      all.push_back({c});
    }
  };
  Case c = base;
  for (const std::string& spec : specs_for(machine))
    for (c.replicas = 1; c.replicas <= c.ranks; ++c.replicas) {
      if (c.ranks % c.replicas != 0)
        continue;
      for (const topology::Groups& groups : groupings)
        for (std::int64_t b = 1; b <= sequences; b *= 2) {
          if (sequences % b != 0)
            continue;
          set_schedule(c, spec);
          c.groups = groups;
          c.shape.micro_batch = b;
          c.micro_batches = sequences / b;
          for (const int n : b == 1 ? sharers_for(base) : std::vector{1}) {
            c.shape.context = {0, n};
            add(c);
          }
        }
    }
  return all;
}

/// About the number of actions of a replica, up to a factor.
double size_of(const Case& c) {
  return 1.0 * (c.micro_batches + c.ranks) / c.replicas * c.shape.layers;
}

using Clock = std::chrono::steady_clock;
using Time = std::chrono::time_point<Clock, std::chrono::duration<double>>;
constexpr const char* late = "were not tried in time";

/// Small programs first; candidates of one program are neighbours.
void bound(std::vector<Candidate>& all, const Machine& machine, Planner& planner, Time end) {
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return size_of(c.asked); });
  for (Candidate& c : all) {
    if (Clock::now() >= end) {
      c.why = late;
      continue;
    }
    c.floor = floor_of(planner.plan(c.asked), machine);
    if (!machine.has_room(c.floor.memory))
      c.why = "do not fit";
  }
}

/// Low bounds first. Once enough candidates are faster than the next bound, the rest has lost.
void predict_promising(std::vector<Candidate>& all,
    const topology::Groups& groups,
    const Machine& machine,
    Planner& planner,
    std::size_t best,
    Time end) {
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
    if (Clock::now() >= end) {
      c.why = late;
      continue;
    }
    Prediction prediction = predict(planner.plan(c.asked), machine);
    prediction.spans = {};
    Case in_groups = c.asked;
    in_groups.groups = groups;  // whose number pipelines and flat FSDP do not know
    if (!steps.emplace(deck::identity(in_groups), prediction.seconds).second) {
      c.why = "differ in groups alone";
      continue;
    }
    times.insert(prediction.seconds);
    c.prediction = std::move(prediction);
  }
}
}  // namespace

std::vector<Candidate> search(
    const Case& base, const Machine& machine, std::size_t best, double seconds) {
  const std::chrono::duration<double> limit(seconds);
  const Time begin = Clock::now();
  std::vector<Candidate> all = candidates(base, machine);
  Planner planner;
  bound(all, machine, planner, begin + 0.5 * limit);
  predict_promising(all, base.groups, machine, planner, best, begin + limit);
  std::ranges::stable_sort(
      all, {}, [](const Candidate& c) { return c.prediction ? c.prediction->seconds : 1e300; });
  return all;
}
}  // namespace minitaw::predict

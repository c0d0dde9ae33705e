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

/// About the number of actions that are executed, up to a factor.
double size_of(const Case& c, const Machine& machine) {
  const double part = replicas_are_alike(c, machine) ? 1.0 / c.replicas : 1;
  return part * (c.micro_batches + c.ranks) * c.shape.layers;
}

using Clock = std::chrono::steady_clock;
using Time = std::chrono::time_point<Clock, std::chrono::duration<double>>;
constexpr const char* late = "were not tried in time";

/// Of one program.
void bound(std::span<Candidate> several, const Machine& machine) {
  const auto floors = floors_of(list_of(several, &Candidate::settings), machine);
  for (const int i : indices(several)) {
    several[i].floor = floors[i];
    if (!machine.has_room(floors[i].memory))
      several[i].why = "do not fit";
  }
}

/// Candidates of one program together, small programs first.
void bound(std::vector<Candidate>& all, const Machine& machine, Time end) {
  std::ranges::stable_sort(
      all, {}, [&](const Candidate& c) { return size_of(c.settings, machine); });
  for (auto first = all.begin(), last = first; first != all.end(); first = last) {
    const schedule::Request request = request_of(first->settings);
    last = std::find_if(
        first, all.end(), [&](const Candidate& c) { return request_of(c.settings) != request; });
    if (Clock::now() < end)
      bound({first, last}, machine);
    else
      std::for_each(first, last, [](Candidate& c) { c.why = late; });
  }
}

/// Low bounds first. Once enough candidates are faster than the next bound, the rest has lost.
void predict_promising(std::vector<Candidate>& all,
    const topology::Groups& groups,
    const Machine& machine,
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
    Prediction prediction = predict(c.settings, machine);
    prediction.spans = {};
    prediction.program = {};
    Case in_groups = c.settings;
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
  bound(all, machine, begin + 0.5 * limit);
  predict_promising(all, base.groups, machine, best, begin + limit);
  std::ranges::stable_sort(
      all, {}, [](const Candidate& c) { return c.prediction ? c.prediction->seconds : 1e300; });
  return all;
}
}  // namespace minitaw::predict

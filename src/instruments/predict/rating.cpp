// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/rating.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <future>
#include "base/error.hpp"

namespace minitaw::predict {
namespace {
/// Seconds that the timed steps of a case last at least, and a reserve (docs/acceptance.md).
constexpr double least_timed = 10, reserve = 1.1;

/// The machine with half of a part.
Machine halved(Machine machine, Part part) {
  switch (part) {
  case Part::between: machine.rate /= 2; break;
  case Part::inside: machine.inside_rate /= 2; break;
  case Part::memory: machine.memory_rate /= 2; break;
  }
  return machine;
}

/// Parts that the machine has.
std::vector<Part> parts_of(const Machine& machine) {
  std::vector<Part> parts;
  if (machine.nodes > 1)
    parts.push_back(Part::between);
  if (machine.ranks_per_node > 1)
    parts.push_back(Part::inside);
  parts.push_back(Part::memory);
  return parts;
}

std::string name_of(Part part) {
  switch (part) {
  case Part::between: return "network";
  case Part::inside: return "links inside nodes";
  case Part::memory: return "memory";
  }
  return {};
}

/// The fastest of some cases; nothing if none fits. What cannot be faster by its floor is not
/// predicted.
std::optional<RatedCase> fastest_of(const std::vector<Case>& cases, const Machine& machine) {
  std::optional<RatedCase> best;
  Planner planner;
  for (const Case& c : cases) {
    const Plan plan = planner.plan(c);
    const Floor floor = floor_of(plan, machine);
    const double seconds = best ? best->prediction.seconds : never;
    if (!machine.has_room(floor.memory) || floor.seconds() >= seconds)
      continue;
    if (Prediction p = predict(plan, machine); p.seconds < seconds) {
      p.spans = {};
      best = {c, std::move(p)};
    }
  }
  return best;
}

/// The same case with half of each part, which takes as much memory.
void add_halved(RatedCase& rated, const Machine& machine) {
  for (const Part part : parts_of(machine))
    rated.halved[part] =
        fastest_of({rated.asked}, halved(machine, part)).value().prediction.seconds;
}

double hours_of(const Case& c, double step) {
  return c.repeats * (c.warmup + steps_of(c, step)) * step / 3600;
}

/// What is known of the cases of one length, in one of the ratings.
struct RatedLength {
  RatedCase whole;
  double hours = 0;
  std::map<Part, double> seconds{};  ///< of the fastest step with half of a part
  bool in_time = true;
};

RatedLength rate_deck(const std::vector<Case>& cases, const Machine& machine) {
  RatedLength found;
  std::optional<RatedCase> best;
  for (const Case& c : cases)
    if (std::optional<RatedCase> rated = fastest_of({c}, machine)) {
      found.hours += hours_of(c, rated->prediction.seconds);
      if (!best || rated->prediction.seconds < best->prediction.seconds)
        best = std::move(rated);
    }
  if (!best)
    throw InputError("--rating: no case of {} tokens fits", cases.front().shape.seq);
  found.whole = *std::move(best);
  add_halved(found.whole, machine);
  for (const Part part : parts_of(machine))
    found.seconds[part] = fastest_of(cases, halved(machine, part)).value().prediction.seconds;
  return found;
}

/// Families that can have such a step with half of a part: with the whole part they had a shorter
/// one, or none was predicted because another was faster.
std::vector<std::string> contenders(const std::vector<Found>& tuned, double seconds) {
  std::vector<std::string> names;
  for (const Found& found : tuned)
    if (found.prediction ? found.prediction->seconds < seconds : found.why == "slower")
      names.push_back(found.family);
  return names;
}

/// The same with the best settings: of the whole machine until `half_time`, then with half of each
/// part until `deadline`.
RatedLength rate_best(RatedLength found,
    const Machine& machine,
    Clock::time_point half_time,
    Clock::time_point deadline) {
  const Case base = found.whole.asked;
  SearchOptions options{.shares_sequences = false};
  const auto faster = [&](const Machine& than_on, double seconds, Clock::time_point end) {
    options.faster_than = seconds;
    options.deadline = end;
    return search(base, than_on, options);
  };
  const auto complete = [&](const std::vector<Found>& all) {
    found.in_time = found.in_time && std::ranges::all_of(all, &Found::in_time);
  };
  const std::vector<Found> tuned = faster(machine, found.whole.prediction.seconds, half_time);
  complete(tuned);
  if (const Found& first = tuned.front(); first.prediction) {
    found.whole = {first.asked, *first.prediction};
    add_halved(found.whole, machine);
  }
  found.hours = hours_of(found.whole.asked, found.whole.prediction.seconds);
  for (auto& [part, seconds] : found.seconds) {
    const Machine less = halved(machine, part);
    seconds = std::min(seconds, found.whole.halved.at(part));
    options.families = contenders(tuned, seconds);
    if (options.families.empty())
      continue;
    const std::vector<Found> slower = faster(less, seconds, deadline);
    complete(slower);
    if (slower.front().prediction)
      seconds = slower.front().prediction->seconds;
  }
  return found;
}

double mean_of(const std::vector<double>& rates) {
  double sum = 0;
  for (const double rate : rates)
    sum += std::log(rate);
  return std::exp(sum / static_cast<double>(rates.size()));
}

Rating rating_of(const std::string& name, const std::vector<RatedLength>& lengths) {
  Rating rating{.name = name};
  std::vector<double> rates;
  std::map<Part, std::vector<double>> slower;
  for (const RatedLength& length : lengths) {
    rating.cases.push_back(length.whole);
    rating.hours += length.hours;
    rates.push_back(length.whole.prediction.tokens_per_s);
    for (const auto& [part, seconds] : length.seconds)
      slower[part].push_back(tokens_of_step(length.whole.asked) / seconds);
  }
  rating.tokens_per_s = mean_of(rates);
  for (const auto& [part, of_lengths] : slower)
    rating.losses[part] = 1 - mean_of(of_lengths) / rating.tokens_per_s;
  return rating;
}

/// The cases of each length.
std::map<std::int64_t, std::vector<Case>> by_length(const std::vector<Case>& cases) {
  std::map<std::int64_t, std::vector<Case>> all;
  for (const Case& c : cases)
    all[c.shape.seq].push_back(c);
  return all;
}
}  // namespace

std::string limit_of(const RatedCase& rated) {
  std::string name = "computing";
  double rest = 1, most = 0;
  for (const auto& [part, seconds] : rated.halved) {
    const double share = seconds / rated.prediction.seconds - 1;
    rest -= share;
    if (share > most) {
      most = share;
      name = name_of(part);
    }
  }
  return rest > most ? fmt::format("computing {:.0f} %", 100 * rest)
                     : fmt::format("{} {:.0f} %", name, 100 * most);
}

int steps_of(const Case& c, double step) {
  return std::max(c.steps, static_cast<int>(std::ceil(reserve * least_timed / (step * c.repeats))));
}

Case network_case(const std::vector<Case>& cases, int replicas) {
  Case c = std::ranges::min(cases, {}, [](const Case& one) { return one.shape.seq; });
  set_schedule(c, "fsdp:hierarchical=on");
  c.replicas = replicas;
  c.micro_batches = sequences_of_step(c);
  c.shape.micro_batch = 1;
  c.shape.recompute = model::Recompute::block;
  return c;
}

Ratings rate(
    const std::vector<Case>& cases, int network_replicas, const Machine& machine, double seconds) {
  using Both = std::pair<RatedLength, RatedLength>;
  const Clock::time_point half_time = deadline_in(seconds / 2), deadline = deadline_in(seconds);
  std::vector<std::future<Both>> lengths;  // each in a thread of its own
  for (const auto& [seq, some] : by_length(cases)) {
    const auto both = [&, of_length = some] {
      RatedLength deck = rate_deck(of_length, machine);
      RatedLength best = rate_best(deck, machine, half_time, deadline);
      return Both(std::move(deck), std::move(best));
    };
    lengths.push_back(std::async(std::launch::async, both));
  }
  std::vector<RatedLength> deck, best;
  for (std::future<Both>& length : lengths) {
    auto [as_it_is, tuned] = length.get();
    deck.push_back(std::move(as_it_is));
    best.push_back(std::move(tuned));
  }
  Ratings ratings;
  ratings.all = {rating_of("deck", deck), rating_of("best", best)};
  if (machine.nodes > 1)
    ratings.all.push_back(
        rating_of("network", {rate_deck({network_case(cases, network_replicas)}, machine)}));
  if (!std::ranges::all_of(best, &RatedLength::in_time))
    ratings.notes.emplace_back("not all settings were tried in time: raise --time-limit");
  return ratings;
}
}  // namespace minitaw::predict

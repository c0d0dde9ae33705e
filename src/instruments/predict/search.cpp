// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/search.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <ranges>
#include <utility>
#include "base/error.hpp"
#include "deck/deck.hpp"

namespace minitaw::predict {
namespace {
using Cases = std::vector<Case>;

bool is_possible(const Case& c) {
  try {
    model::check(c.shape);
  } catch (const InputError&) {  // a slice would have no token
    return false;
  }
  return schedule::is_buildable(request_of(c));
}

/// Copies of a case in which `change` has set another value, as far as they can be run.
template <class Value>
Cases variants(const Case& base,
    const std::vector<Value>& values,
    const std::function<bool(Case&, const Value&)>& change) {
  Cases all;
  for (const Value& value : values) {
    Case c = base;
    if (change(c, value) && is_possible(c))
      all.push_back(std::move(c));
  }
  return all;
}

std::vector<int> divisors_of(int number) {
  std::vector<int> all;
  for (int i = 1; i <= number; ++i)
    if (number % i == 0)
      all.push_back(i);
  return all;
}

std::vector<std::int64_t> powers_up_to(std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= most; i *= 2)
    all.push_back(i);
  return all;
}

/// Returns whether programs are small: a replica has a node, or a rank for each block.
bool is_small(const Case& c) {
  return c.ranks / c.replicas <= std::max(c.shape.layers, c.groups.size(0));
}

/// Of replicas, and of ranks that share a sequence, at most `sharers` of a group: the stages of a
/// pipeline follow from both. Where ranks share, a micro-batch is one sequence.
Cases with_replicas(const Case& base, bool small, std::int64_t sharers = 1) {
  using Both = std::pair<int, std::int64_t>;
  std::vector<Both> values;
  for (const int replicas : divisors_of(base.ranks))
    for (const std::int64_t ranks : powers_up_to(sharers))
      values.emplace_back(replicas, ranks);
  return variants<Both>(base, values, [=](Case& c, const Both& value) {
    const auto [replicas, ranks] = value;
    c.replicas = replicas;
    c.shape.context = {0, static_cast<int>(ranks)};
    return is_small(c) == small && (ranks == 1 || c.shape.micro_batch == 1) &&
           (ranks == 1 || c.shape.seq % (2 * ranks) == 0);
  });
}

Cases with_micro_batches(const Case& base) {
  const std::int64_t sequences = sequences_of_step(base);
  return variants<std::int64_t>(base, powers_up_to(sequences), [=](Case& c, std::int64_t size) {
    c.shape.micro_batch = size;
    c.micro_batches = sequences / size;
    return sequences % size == 0 && (size == 1 || c.shape.context.count == 1);
  });
}

/// Groups of a node, and of half a node.
Cases with_groups(const Case& base, const topology::Groups& nodes) {
  return variants<int>(base, {1, 2}, [&](Case& c, int parts) {
    const int count = parts * nodes.count();
    c.groups = parts == 1 ? nodes : topology::Groups::equal(c.ranks, count);
    return parts == 1 || (nodes.count() > 1 && c.ranks % count == 0);
  });
}

/// Values of options that are tried together, as in the text of a schedule.
using Forms = std::map<std::string, std::vector<std::string>>;

Forms forms_on(const Machine& machine) {
  Forms forms = {{"prefetch", {"prefetch=1", "prefetch=2"}},
      {"chunks", {"chunks=1", "chunks=2", "chunks=4"}},
      {"slices", {"slices=1", "slices=4", "slices=16"}},
      {"shards", {"shards=rank", "shards=block"}},
      {"hierarchical", {"hierarchical=off", "hierarchical=on"}},
      // What ranks may keep in a step: nothing, what users know by names of their own (ZeRO++ hpZ,
      // FSDP's reshard_after_forward = False, ZeRO-2, ZeRO-1), and the fewest bytes between groups.
      {"reshard",
          {"fetch=micro_batch:reduce=world:reshard=world",
              "fetch=micro_batch:reduce=world:reshard=group",
              "fetch=micro_batch:reduce=world:reshard=none",
              "fetch=step:reduce=world:reshard=none",
              "fetch=step:reduce=none:reshard=none",
              "fetch=step:reduce=group:reshard=group"}}};
  if (machine.adapters > 1)
    forms["rails"] = {"rails=1", fmt::format("rails={}", machine.adapters)};
  return forms;
}

Cases with_options(const Case& base, const std::vector<std::string>& forms) {
  return variants<std::string>(base, forms, [](Case& c, const std::string& form) {
    schedule::Spec spec = schedule::parse_spec(c.schedule);
    const schedule::Spec values = schedule::parse_spec(spec.name + ":" + form);
    for (const auto& [option, value] : values.options)
      spec.options[option] = value;
    set_schedule(c, schedule::to_text(spec));
    return true;
  });
}

/// Seconds in which a rank computes blocks and losses, the mean over ranks.
double mean_compute(const Case& c, const Machine& machine) {
  const auto speed = machine.speeds.find(c.shape.dtype);
  if (speed == machine.speeds.end())
    return 0;  // what is planned says so
  const model::Price price = model::in_seconds(speed->second, machine.memory_rate);
  model::Shape shape = c.shape;
  shape.slices = 1;
  const model::BlockCost block = model::cost_of_block(shape, price);
  const double micro_batch =
      shape.layers * (block.forward() + block.backward_input() + block.backward_weight()) +
      model::cost_of_loss(shape, price);
  return micro_batch * c.micro_batches / sharers_of(c);
}

/// What a case is worth. One that does not fit is worse than any that does, and the more so the
/// more memory it needs.
struct Worth {
  bool fits = false;
  double cost = never;  ///< s of a step, or else bytes

  bool better_than(const Worth& other) const {
    return fits != other.fits ? fits : cost < other.cost * (1 - 1e-9);
  }
};

/// Where the search begins in a family: what is recomputed decides most of what fits, so it begins
/// with each, the least first; with many replicas, each small and soon tried, and with the fewest.
Cases starts_of(const Case& base, const std::string& family) {
  using model::Recompute;
  Cases all;
  Case start = base;
  start.shape.context = {};
  start.micro_batches = sequences_of_step(base);
  start.shape.micro_batch = 1;
  set_schedule(start, family);
  for (const Recompute recompute : {Recompute::none, Recompute::keep_attention, Recompute::block}) {
    start.shape.recompute = recompute;
    if (const Cases small = with_replicas(start, true); !small.empty())
      all.insert(all.end(), {small.back(), small.front()});
  }
  return all;
}

/// The search in one family.
class Climb {
public:
  Climb(const Case& base, const Machine& machine, const SearchOptions& options, double& fastest)
      : base_(base),
        machine_(machine),
        options_(options),
        forms_(forms_on(machine)),
        fastest_(fastest) {}

  Found of(const std::string& family) {
    found_.family = family;
    found_.why = "cannot be run";
    for (const Case& start : starts_of(base_, family))
      climb(start);
    if (found_.prediction)
      with_large_replicas();
    else if (!known_.empty())
      found_.why = best_.fits ? "slower" : found_.tried > 0 ? "does not fit" : "not tried";
    return found_;
  }

private:
  void climb(Case at) {
    Worth worth = worth_of(at);
    for (bool better = true; better;) {
      better = false;
      for (const Setting& values : settings_of(at))
        for (const Case& other : values(at))
          if (const Worth there = worth_of(other); there.better_than(worth)) {
            worth = there;
            at = other;
            better = true;
          }
    }
  }

  /// With all else as it is, from the smallest on as long as they are better.
  void with_large_replicas() {
    const Cases large = with_replicas(found_.asked, false);
    for (const Case& c : large | std::views::reverse) {
      worth_of(c);
      if (found_.asked != c)
        break;
    }
  }

  /// Returns a case with each value of a setting.
  using Setting = std::function<Cases(const Case&)>;

  /// What may be set otherwise, what matters most first.
  std::vector<Setting> settings_of(const Case& c) const {
    const std::int64_t sharers =
        options_.shares_sequences ? std::ranges::min(base_.groups.sizes()) : 1;
    const auto replicas = [sharers](
                              const Case& base) { return with_replicas(base, true, sharers); };
    std::vector<Setting> all = {with_micro_batches, replicas};
    for (const schedule::OptionDoc& option :
        schedule::entry_of(schedule::parse_spec(c.schedule).name).options)
      if (const auto forms = forms_.find(option.name); forms != forms_.end())
        all.emplace_back(
            [&values = forms->second](const Case& base) { return with_options(base, values); });
    all.emplace_back([this](const Case& base) { return with_groups(base, base_.groups); });
    return all;
  }

  /// What cannot be faster than the best is not planned, or not predicted.
  Worth worth_of(const Case& c) {
    const auto [known, is_new] = known_.try_emplace(deck::identity(c));
    Worth& worth = known->second;
    if (!is_new)
      return worth;
    if (const double least = mean_compute(c, machine_); least >= limit())
      return worth = {true, least};
    if (Clock::now() >= options_.deadline) {
      found_.in_time = false;
      return worth;
    }
    const Plan plan = planner_.plan(c);
    ++found_.tried;
    const Floor floor = floor_of(plan, machine_);
    worth = {machine_.has_room(floor.memory), 1.0 * floor.memory};
    if (worth.fits) {
      worth.cost = floor.seconds();
      if (worth.cost < limit()) {
        Prediction prediction = predict(plan, machine_);
        worth.cost = prediction.seconds;
        keep(c, std::move(prediction));
      }
    }
    if (worth.better_than(best_))
      best_ = worth;
    return worth;
  }

  double limit() const {
    constexpr double clearly = 0.995;
    if (options_.faster_than)
      return clearly * fastest_;
    return found_.prediction ? found_.prediction->seconds : never;
  }

  void keep(const Case& c, Prediction prediction) {
    if (found_.prediction && found_.prediction->seconds <= prediction.seconds)
      return;
    fastest_ = std::min(fastest_, prediction.seconds);
    prediction.spans = {};
    found_.asked = c;
    found_.prediction = std::move(prediction);
    found_.why.clear();
  }

  const Case& base_;
  const Machine& machine_;
  const SearchOptions& options_;
  const Forms forms_;
  double& fastest_;  ///< step of any family, s
  Planner planner_;
  std::map<std::string, Worth> known_;  ///< by identity
  Worth best_;
  Found found_;
};

std::vector<std::string> families_of_schedules() {
  std::vector<std::string> names;
  for (const schedule::Entry& entry : schedule::registry())
    if (!entry.one_rank && !entry.needs_file)
      names.push_back(entry.name);
  return names;
}

}  // namespace

std::vector<Found> search(const Case& base, const Machine& machine, const SearchOptions& options) {
  const std::vector<std::string> families =
      options.families.empty() ? families_of_schedules() : options.families;
  std::vector<Found> all;
  double fastest = options.faster_than.value_or(never);
  for (const std::string& family : families) {
    // Each family that is to be shown has its share of the time that is left.
    SearchOptions own = options;
    if (!options.faster_than && options.deadline != Clock::time_point::max())
      own.deadline = Clock::now() +
                     (options.deadline - Clock::now()) / (std::ssize(families) - std::ssize(all));
    all.push_back(Climb(base, machine, own, fastest).of(family));
  }
  std::ranges::stable_sort(all, {}, [](const Found& found) {
    return found.prediction ? found.prediction->seconds : never;
  });
  return all;
}
}  // namespace minitaw::predict

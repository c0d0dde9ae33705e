// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/search.hpp"
#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <tuple>
#include "base/error.hpp"
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
  c.micro_batch_per_rank.clear();
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
          c.micro_batches = static_cast<int>(sequences / b);
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

/// The time that is left, and what work costs.
class Time {
public:
  explicit Time(double seconds) : seconds_(seconds) {}

  double passed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  /// Returns whether work of this size will have ended when that share of the time has passed.
  bool is_enough_for(double size, double share) const {
    return passed() + (done_ > 0 ? spent_ / done_ * size : 0) < share * seconds_;
  }

  /// Does work of this size.
  template <class Work>
  void spend(double size, const Work& work) {
    const double begin = passed();
    work();
    spent_ += passed() - begin;
    done_ += size;
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
  double seconds_, spent_ = 0, done_ = 0;
};

class Search {
public:
  Search(const Case& base, const Machine& machine, const SearchOptions& options)
      : base_(base),
        machine_(machine),
        options_(options),
        left_(options.seconds) {}

  std::vector<Candidate> run() && {
    add(candidates(base_, machine_));
    if (goes_on_)
      add(refined());
    return std::move(all_);
  }

private:
  using Several = std::vector<Candidate>::iterator;

  void add(std::vector<Candidate> some) {
    bound(some);
    predict_promising(some);
    std::ranges::move(some, std::back_inserter(all_));
    std::ranges::stable_sort(
        all_, {}, [](const Candidate& c) { return c.prediction ? c.prediction->seconds : 1e300; });
  }

  void bound(std::vector<Candidate>& all) {
    constexpr double share = 0.5;  // of the time
    std::ranges::stable_sort(
        all, {}, [&](const Candidate& c) { return size_of(c.settings, machine_); });
    Time time(left_);
    for (Several first = all.begin(), last; first != all.end(); first = last) {
      const schedule::Request request = request_of(first->settings);
      last = std::find_if(
          first, all.end(), [&](const Candidate& c) { return request_of(c.settings) != request; });
      const double size = size_of(first->settings, machine_);
      if (!go_on({"bounds", static_cast<std::size_t>(first - all.begin()), all.size()}) ||
          !time.is_enough_for(size, share))
        std::for_each(first, last, [](Candidate& c) { c.why = "time"; });
      else
        time.spend(size, [&] { bound(first, last); });
    }
    left_ -= time.passed();
  }

  void bound(Several first, Several last) {
    std::vector<Case> cases;
    std::for_each(first, last, [&](const Candidate& c) { cases.push_back(c.settings); });
    try {
      for (const Floor& floor : floors_of(cases, machine_)) {
        first->floor = floor;
        if (!floor.fits.value_or(true))
          first->why = "memory";
        ++first;
      }
    } catch (const InputError& error) {
      std::for_each(first, last, [&](Candidate& c) { c.why = error.what(); });
    }
  }

  /// Low bounds first. Once enough candidates are faster than the next bound, the rest has lost.
  void predict_promising(std::vector<Candidate>& all) {
    std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.floor.seconds(); });
    Time time(left_);
    std::size_t at = 0;
    for (Candidate& c : all) {
      ++at;
      if (!c.why.empty())
        continue;
      if (times_.size() >= options_.best &&
          c.floor.seconds() >= *std::next(times_.begin(), options_.best - 1)) {
        c.why = c.floor.adapter > c.floor.compute ? "adapter" : "computing";
        continue;
      }
      const double size = size_of(c.settings, machine_);
      if (!go_on({"steps", at, all.size()}) || !time.is_enough_for(size, 1)) {
        c.why = "time";
        continue;
      }
      time.spend(size, [&] { c.prediction = predict(c.settings, machine_); });
      c.prediction->spans = {};
      c.prediction->program = {};
      if (!steps_.insert(step_of(c)).second) {
        c.prediction.reset();
        c.why = "groups";
        continue;
      }
      times_.insert(c.prediction->seconds);
      if (!best_ || c.prediction->seconds < best_->prediction->seconds)
        best_ = c;
    }
    left_ -= time.passed();
  }

  /// How far ahead weights should leave, and how much time gradients should have, depends on all
  /// else: other values for those of the best that have both options.
  std::vector<Candidate> refined() const {
    std::set<std::string> known;
    for (const Candidate& c : all_)
      known.insert(deck::identity(c.settings));
    std::vector<Candidate> more;
    for (Candidate c : all_ | std::views::take(options_.best)) {
      schedule::Spec spec = schedule::parse_spec(c.settings.schedule);
      const std::vector<schedule::OptionDoc>& options = schedule::entry_of(spec.name).options;
      if (!c.prediction ||
          std::ranges::count(options, "grad_ticks", &schedule::OptionDoc::name) == 0)
        continue;
      for (const int prefetch : {1, 2, 3, 4, 6})
        for (const int ticks : {1, 2, 3, 4}) {
          spec.options["prefetch"] = std::to_string(prefetch);
          spec.options["grad_ticks"] = std::to_string(ticks);
          set_schedule(c.settings, schedule::to_text(spec));  // without defaults
          if (known.insert(deck::identity(c.settings)).second)
            more.push_back({c.settings});
        }
    }
    return more;
  }

  bool go_on(SearchProgress progress) {
    if (best_)
      progress.best = &*best_;
    goes_on_ = goes_on_ && options_.go_on(progress);
    return goes_on_;
  }

  /// All but the number of groups, which pipelines and flat FSDP do not know.
  using Step = std::tuple<std::string, int, int, std::int64_t, model::Recompute, double>;

  static Step step_of(const Candidate& c) {
    return {c.settings.schedule,
        c.settings.replicas,
        c.settings.shape.context.count,
        c.settings.shape.micro_batch,
        c.settings.shape.recompute,
        c.prediction->seconds};
  }

  const Case& base_;
  const Machine& machine_;
  const SearchOptions& options_;
  std::vector<Candidate> all_;
  std::set<Step> steps_;
  std::multiset<double> times_;  ///< of steps, seconds
  std::optional<Candidate> best_;
  double left_;  ///< seconds
  bool goes_on_ = true;
};
}  // namespace

std::vector<Candidate> search(
    const Case& base, const Machine& machine, const SearchOptions& options) {
  return Search(base, machine, options).run();
}
}  // namespace minitaw::predict

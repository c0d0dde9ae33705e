// SPDX-License-Identifier: BSD-3-Clause
// Finds what makes a case fit that does not.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include "base/error.hpp"
#include "case_plan.hpp"
#include "model/layout.hpp"

namespace minitaw::app {
namespace {
/// A case after a change, and the settings that say it.
struct Change {
  Case changed;
  Settings settings;
};

std::string text_of(std::int64_t number) {
  return fmt::format("{}", number);
}

// All of a key that may be tried, the least change first.

std::vector<Change> recomputations(const Case& c) {
  using enum model::Recompute;
  std::vector<Change> found;
  for (const model::Recompute less : {keep_attention, block})
    if (less < c.shape.recompute) {
      Change& change = found.emplace_back(c);
      change.changed.shape.recompute = less;
      change.settings = {{"recompute", name_of(less)}};
    }
  return found;
}

/// Smaller micro-batches, and as many more of them.
std::vector<Change> micro_batches(const Case& c) {
  std::vector<Change> found;
  if (!c.micro_batch_per_rank.empty())
    return found;
  for (std::int64_t size = c.shape.micro_batch - 1; size > 0; --size) {
    if (c.shape.micro_batch % size != 0)
      continue;
    Change& change = found.emplace_back(c);
    change.changed.shape.micro_batch = size;
    change.changed.micro_batches *= static_cast<int>(c.shape.micro_batch / size);
    change.settings = {
        {"micro_batch", text_of(size)}, {"micro_batches", text_of(change.changed.micro_batches)}};
  }
  return found;
}

/// Of a pipeline that can pass slices.
std::vector<Change> slices(const Case& c) {
  constexpr int most = 16;
  std::vector<Change> found;
  schedule::Spec spec = schedule::parse_spec(c.schedule);
  const auto& options = schedule::entry_of(spec.name).options;
  if (std::ranges::find(options, "slices", &schedule::OptionDoc::name) == options.end())
    return found;
  for (int count = 2 * c.shape.slices; count <= most; count *= 2) {
    Change& change = found.emplace_back(c);
    spec.options["slices"] = text_of(count);
    set_schedule(change.changed, to_text(spec));
    change.settings = {{"schedule", change.changed.schedule}};
  }
  return found;
}

/// More ranks that share a sequence.
std::vector<Change> contexts(const Case& c) {
  const int smallest = std::ranges::min(c.groups.sizes());
  std::vector<Change> found;
  for (int count = 2 * c.shape.context.count; count <= smallest; count *= 2) {
    Change& change = found.emplace_back(c);
    change.changed.shape.context.count = count;
    change.settings = {{"context", text_of(count)}};
  }
  return found;
}

/// As many more groups of the same sizes, with as many more micro-batches.
std::vector<Change> ranks(const Case& c) {
  constexpr int most = 16;
  const bool equal =
      std::ranges::adjacent_find(c.groups.sizes(), std::not_equal_to()) == c.groups.sizes().end();
  std::vector<Change> found;
  for (int factor = 2; factor <= most; factor *= 2) {
    std::vector<int> sizes;
    for (int copy = 0; copy < factor; ++copy)
      sizes.insert(sizes.end(), c.groups.sizes().begin(), c.groups.sizes().end());
    Change& change = found.emplace_back(c);
    Case& more = change.changed;
    more.groups = topology::Groups(sizes);
    more.ranks *= factor;
    more.micro_batches *= factor;
    change.settings = {{"ranks", text_of(more.ranks)},
        {"groups", equal ? text_of(more.groups.count()) : more.groups.text()},
        {"micro_batches", text_of(more.micro_batches)}};
  }
  return found;
}

using Changes = std::vector<Change> (*)(const Case& c);
/// In the order in which they are tried together: what costs least time comes first.
constexpr Changes all_changes[] = {recomputations, micro_batches, slices, contexts, ranks};

/// Bytes of the rank that needs most; nothing if the case cannot be run.
std::optional<std::uint64_t> need_of(const Case& c) {
  try {
    model::check(c.shape);
    schedule::check(request_of(c));
    return worst_on_device(c, schedule::build(request_of(c))).total();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Adds the settings of a change; a key that is there has the new value then.
void add(Settings& settings, const Change& change) {
  for (const auto& setting : change.settings) {
    std::erase_if(settings, [&](const auto& old) { return old.first == setting.first; });
    settings.push_back(setting);
  }
}

/// One change after the other, each as far as it helps, until all together suffice.
std::optional<Remedy> together(Case c, std::uint64_t available) {
  Remedy remedy;
  std::uint64_t least = need_of(c).value();
  for (const Changes changes : all_changes) {
    std::optional<Change> best;
    for (const Change& change : changes(c)) {
      const auto need = need_of(change.changed);
      if (!need || *need >= least)
        continue;
      best = change;
      least = *need;
      if (least <= available)
        break;
    }
    if (!best)
      continue;
    add(remedy.settings, *best);
    if (least <= available) {
      remedy.total = least;
      return remedy;
    }
    c = best->changed;
  }
  return std::nullopt;
}
}  // namespace

std::vector<Remedy> remedies_of(const Case& c, std::uint64_t available) {
  std::vector<Remedy> found;
  for (const Changes changes : all_changes)
    for (const Change& change : changes(c))
      if (const auto need = need_of(change.changed); need && *need <= available) {
        found.push_back({change.settings, *need});
        break;
      }
  if (found.empty())
    if (const auto all = together(c, available))
      found.push_back(*all);
  return found;
}
}  // namespace minitaw::app

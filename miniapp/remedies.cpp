// SPDX-License-Identifier: BSD-3-Clause
// Finds what makes a case fit that does not.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include "base/error.hpp"
#include "case_plan.hpp"
#include "deck/keys.hpp"
#include "model/layout.hpp"

namespace minitaw::app {
namespace {
// All changes of a key that may be tried, the least one first.

std::vector<Case> recomputations(const Case& c) {
  using enum model::Recompute;
  std::vector<Case> found;
  for (const model::Recompute less : {keep_attention, block})
    if (less < c.shape.recompute)
      found.emplace_back(c).shape.recompute = less;
  return found;
}

/// Smaller micro-batches, and as many more of them.
std::vector<Case> micro_batches(const Case& c) {
  std::vector<Case> found;
  for (std::int64_t size = c.shape.micro_batch - 1; size > 0; --size) {
    if (c.shape.micro_batch % size != 0)
      continue;
    Case& changed = found.emplace_back(c);
    changed.shape.micro_batch = size;
    changed.micro_batches *= static_cast<int>(c.shape.micro_batch / size);
  }
  return found;
}

/// Of a pipeline that can pass slices.
std::vector<Case> slices(const Case& c) {
  constexpr int most = 16;
  std::vector<Case> found;
  schedule::Spec spec = schedule::parse_spec(c.schedule);
  const auto& options = schedule::entry_of(spec.name).options;
  if (std::ranges::find(options, "slices", &schedule::OptionDoc::name) == options.end())
    return found;
  for (int count = 2 * c.shape.slices; count <= most; count *= 2) {
    spec.options["slices"] = fmt::format("{}", count);
    set_schedule(found.emplace_back(c), to_text(spec));
  }
  return found;
}

/// More ranks that share a sequence.
std::vector<Case> contexts(const Case& c) {
  const int smallest = std::ranges::min(c.groups.sizes());
  std::vector<Case> found;
  for (int count = 2 * c.shape.context.count; count <= smallest; count *= 2)
    found.emplace_back(c).shape.context.count = count;
  return found;
}

/// As many more groups of the same sizes, with as many more micro-batches.
std::vector<Case> ranks(const Case& c) {
  constexpr int most = 16;
  std::vector<Case> found;
  for (int factor = 2; factor <= most; factor *= 2) {
    std::vector<int> sizes;
    for (int copy = 0; copy < factor; ++copy)
      sizes.insert(sizes.end(), c.groups.sizes().begin(), c.groups.sizes().end());
    Case& changed = found.emplace_back(c);
    changed.groups = topology::Groups(sizes);
    changed.ranks *= factor;
    changed.micro_batches *= factor;
  }
  return found;
}

using Changes = std::vector<Case> (*)(const Case& c);
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

/// The keys that must be set to get from one case to the other.
Remedy remedy_of(const Case& c, const Case& changed, std::uint64_t total) {
  const auto [least, most] = std::ranges::minmax(changed.groups.sizes());
  Remedy remedy{{}, total};
  for (const deck::Setting& key : deck::columns()) {
    std::string value = minitaw::to_text(key.value(changed));
    if (!key.form.store || value == minitaw::to_text(key.value(c)))
      continue;
    if (key.name == "groups" && least == most)
      value = fmt::format("{}", changed.groups.count());
    remedy.settings.emplace_back(key.name, value);
  }
  return remedy;
}

/// One change after the other, each as far as it helps, until all together suffice.
std::optional<Remedy> together(const Case& c, std::uint64_t available) {
  std::uint64_t least = need_of(c).value();
  Case best = c;
  for (const Changes changes : all_changes)
    for (const Case& changed : changes(best)) {
      const auto need = need_of(changed);
      if (!need || *need >= least)
        continue;
      best = changed;
      least = *need;
      if (least <= available)
        return remedy_of(c, best, least);
    }
  return std::nullopt;
}
}  // namespace

std::vector<Remedy> remedies_of(const Case& c, std::uint64_t available) {
  std::vector<Remedy> found;
  for (const Changes changes : all_changes)
    for (const Case& changed : changes(c))
      if (const auto need = need_of(changed); need && *need <= available) {
        found.push_back(remedy_of(c, changed, *need));
        break;
      }
  if (found.empty())
    if (const auto all = together(c, available))
      found.push_back(*all);
  return found;
}
}  // namespace minitaw::app

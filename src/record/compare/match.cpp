#include "record/compare/match.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace minitaw::record::compare {

namespace {

/// All runs of one side with the same settings, those that matter included.
struct Group {
  std::string key, variant;
  Runs runs;
  bool taken = false;
};

/// The settings of a sweep that are not part of the key, as they were asked for.
std::string variant_of(const File& file, const StoredCase& stored) {
  std::string text;
  for (const char* name : {"dtype", "recompute", "seed", "learning_rate"})
    text += value_of(name, file, stored) + " ";
  return text + stored.row.text("attention") + " " + stored.row.text("transport");
}

std::vector<Group> groups_of(const Side& side) {
  std::vector<Group> groups;
  for (std::size_t f = 0; f < side.size(); ++f)
    for (const StoredCase& stored : side[f].cases) {
      const std::string key = key_of(stored.row), variant = variant_of(side[f], stored);
      auto at = std::ranges::find_if(
          groups, [&](const Group& group) { return group.key == key && group.variant == variant; });
      if (at == groups.end()) at = groups.insert(at, {key, variant, Runs(side.size())});
      at->runs[f].push_back({&side[f], &stored});
    }
  return groups;
}

/// The other side's group of the same settings, else one that differs only in what matters; it is taken then.
Group* take(std::vector<Group>& groups, const Group& wanted, bool exactly) {
  for (Group& group : groups)
    if (!group.taken && group.key == wanted.key && (!exactly || group.variant == wanted.variant)) {
      group.taken = true;
      return &group;
    }
  return nullptr;
}

std::set<std::string> values_of(const std::string& name, const Runs& runs) {
  std::set<std::string> values;
  for (const std::vector<Run>& file : runs)
    for (const Run& run : file) values.insert(value_of(name, *run.file, *run.stored));
  values.erase("");  // not known
  return values;
}

std::vector<std::string> differences(const Match& pair, const std::set<std::string>& allowed) {
  std::vector<std::string> differs;
  for (const std::string& name : what_matters()) {
    const std::set<std::string> base = values_of(name, pair.base), fresh = values_of(name, pair.fresh);
    if (base.empty() || fresh.empty() || base == fresh) continue;
    const Run& run = first_of(pair.base);
    if (!allowed.contains(name))
      throw InputError(fmt::format(
          "case {} ({}) of {} has {} {}, and {} in {}; add --allow {} to compare all the same",
          run.stored->row.integer("case"), label_of(run.stored->row), run.file->path, name,
          fmt::join(base, " and "), fmt::join(fresh, " and "), first_of(pair.fresh).file->path, name));
    differs.push_back(name);
  }
  return differs;
}

/// What makes the first cases of the two files different ones.
std::string first_difference(const Row& base, const Row& fresh) {
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const std::string& name = columns()[i].name;
    const auto named_in = [&](const Row& row) {
      return key_of(row).find(" " + name + "=") != std::string::npos || key_of(row).starts_with(name + "=");
    };
    if (!columns()[i].setting || !named_in(base) || base.cells()[i] == fresh.cells()[i]) continue;
    return fmt::format("{} is {} in the first case of one and {} in that of the other", name,
                       to_text(base.cells()[i]), to_text(fresh.cells()[i]));
  }
  return "their first cases have equal settings";
}

std::vector<std::string> labels_of(const std::vector<Group>& groups) {
  std::vector<std::string> labels;
  for (const Group& group : groups)
    if (!group.taken) labels.push_back(label_of(first_of(group.runs).stored->row));
  return labels;
}

}  // namespace

const Run& first_of(const Runs& runs) {
  for (const std::vector<Run>& file : runs)
    if (!file.empty()) return file.front();
  throw LogicError("a case that no file has");
}

Matches match(const Side& base, const Side& fresh, const std::set<std::string>& allowed) {
  std::vector<Group> mine = groups_of(base), others = groups_of(fresh);
  std::vector<Group*> partner(mine.size(), nullptr);
  for (const bool exactly : {true, false})
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (partner[i] == nullptr) partner[i] = take(others, mine[i], exactly);
  Matches found;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i].taken = partner[i] != nullptr;
    if (!mine[i].taken) continue;
    found.both.push_back({mine[i].runs, partner[i]->runs, {}});
    found.both.back().differs = differences(found.both.back(), allowed);
  }
  if (found.both.empty())
    throw InputError(
        fmt::format("{} and {} have no case in common: {}", base.front().path, fresh.front().path,
                    first_difference(base.front().cases.front().row, fresh.front().cases.front().row)));
  found.only_base = labels_of(mine);
  found.only_fresh = labels_of(others);
  return found;
}

void require_known(const std::vector<std::string>& allowed) {
  for (const std::string& name : allowed)
    if (std::ranges::find(what_matters(), name) == what_matters().end())
      throw InputError(fmt::format("--allow {} is not known; did you mean {}? It takes {}", name,
                                   nearest(name.substr(0, 64), what_matters()),
                                   fmt::join(what_matters(), ", ")));
}

}  // namespace minitaw::record::compare

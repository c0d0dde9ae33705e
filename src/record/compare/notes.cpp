#include "record/compare/notes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

namespace minitaw::record::compare {

namespace {

using Texts = std::set<std::string>;

std::string arrow(const Texts& base, const Texts& fresh) {
  const auto text = [](const Texts& texts) {
    return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, " and "));
  };
  return text(base) + " -> " + text(fresh);
}

/// The values that sessions of a side have, without empty ones.
template <class Get>
Texts values(const Side& side, const Get& get) {
  Texts found;
  for (const File& file : side)
    for (const Provenance& session : file.sessions) found.insert(get(session));
  found.erase("");
  return found;
}

void note_provenance(const Side& base, const Side& fresh, std::vector<std::string>& notes) {
  const std::vector<std::pair<const char*, std::string Provenance::*>> fields = {
      {"version", &Provenance::version},
      {"git_hash", &Provenance::git_hash},
      {"build_type", &Provenance::build_type},
      {"compiler", &Provenance::compiler},
      {"compiler_flags", &Provenance::compiler_flags},
      {"kokkos", &Provenance::kokkos},
      {"mpi", &Provenance::mpi},
      {"nccl", &Provenance::nccl},
      {"cuda", &Provenance::cuda},
      {"driver", &Provenance::driver}};
  for (const auto& [name, field] : fields) {
    const auto get = [field](const Provenance& p) { return p.*field; };
    const Texts a = values(base, get), b = values(fresh, get);
    if (a != b) notes.push_back(fmt::format("{} = {}", name, arrow(a, b)));
  }
}

/// Libraries and variables of the environment: only those that one side lacks.
void note_lists(const Side& base, const Side& fresh, std::vector<std::string>& notes) {
  for (const auto& [name, field] :
       {std::pair{"libraries", &Provenance::libraries}, {"environment", &Provenance::environment}}) {
    const auto all = [field](const Side& side) {
      Texts found;
      for (const File& file : side)
        for (const Provenance& session : file.sessions)
          found.insert((session.*field).begin(), (session.*field).end());
      return found;
    };
    const Texts a = all(base), b = all(fresh);
    Texts lost, gained;
    std::ranges::set_difference(a, b, std::inserter(lost, lost.end()));
    std::ranges::set_difference(b, a, std::inserter(gained, gained.end()));
    if (!lost.empty() || !gained.empty()) notes.push_back(fmt::format("{} = {}", name, arrow(lost, gained)));
  }
}

Texts counts(const Runs& runs, const std::string& column) {
  Texts found;
  for (const std::vector<Run>& file : runs)
    for (const Run& run : file)
      found.insert(fmt::format(
          "{}", std::max<std::int64_t>(column == "repeats" ? 1 : 0, run.stored->row.integer(column))));
  return found;
}

/// How well the sides were measured need not agree, but may explain why one of them scatters more.
void note_effort(const Matches& matches, std::vector<std::string>& notes) {
  for (const char* column : {"steps", "warmup", "repeats"})
    for (const Match& match : matches.both) {
      const Texts a = counts(match.base, column), b = counts(match.fresh, column);
      if (a == b) continue;
      notes.push_back(
          fmt::format("{} = {} in {}", column, arrow(a, b), label_of(first_of(match.base).stored->row)));
      break;
    }
}

void note_allowed(const Matches& matches, std::vector<std::string>& notes) {
  Texts seen;
  for (const Match& match : matches.both)
    for (const std::string& name : match.differs) {
      const auto text = [&name](const Run& run) { return value_of(name, *run.file, *run.stored); };
      if (seen.insert(name).second)
        notes.push_back(fmt::format("{} = {} -> {}, as allowed", name, text(first_of(match.base)),
                                    text(first_of(match.fresh))));
    }
}

}  // namespace

std::vector<std::string> notes_on(const Side& base, const Side& fresh, const Matches& matches) {
  std::vector<std::string> notes;
  note_provenance(base, fresh, notes);
  note_lists(base, fresh, notes);
  note_effort(matches, notes);
  note_allowed(matches, notes);
  for (const std::string& label : matches.only_base) notes.push_back("only in the base: " + label);
  for (const std::string& label : matches.only_fresh) notes.push_back("only in the new one: " + label);
  return notes;
}

}  // namespace minitaw::record::compare

#pragma once

#include <set>
#include <string>
#include <vector>

#include "record/compare/side.hpp"

namespace minitaw::record::compare {

/// A case as one file holds it.
struct Run {
  const File* file;
  const StoredCase* stored;
};

/// A case as all files of a side hold it: [file], usually one of each.
using Runs = std::vector<std::vector<Run>>;
[[nodiscard]] const Run& first_of(const Runs& runs);

/// A case that both sides have. The sides must outlive it.
struct Match {
  Runs base, fresh;
  std::vector<std::string> differs;  ///< what differs although it matters, and was allowed to
};

struct Matches {
  std::vector<Match> both;
  std::vector<std::string> only_base, only_fresh;  ///< labels
};

/// Cases with equal settings, whatever their order. Throws InputError if none is in both, and if two that
/// otherwise match differ in something of what_matters() that is not in `allowed`.
[[nodiscard]] Matches match(const Side& base, const Side& fresh, const std::set<std::string>& allowed);

/// Throws InputError unless all names are of what_matters().
void require_known(const std::vector<std::string>& allowed);

}  // namespace minitaw::record::compare

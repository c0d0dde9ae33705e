// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "case/case.hpp"

namespace minitaw::deck {
struct Deck {
  std::string text;         ///< as read, for the record
  std::vector<Case> cases;  ///< Cartesian product of the axes, first key of keys() slowest
  std::vector<std::string> left_out;  ///< combinations that cannot be run, a sentence a reason
  std::vector<std::string> notes;     ///< these, and what else a reader should know
};

/// Facts about the job that are known before any case is made.
struct Job {
  int ranks = 1;  ///< 0: unknown, for planning only; each case must then say its ranks
  std::vector<int> node_sizes;  ///< ranks per node, in rank order; the default grouping
  bool planning = false;        ///< plan: ranks may exceed the job's, files need not exist
  int adapters = 1;             ///< network adapters of each node
};

/// Reads a TOML deck, applies "key=value" overrides, expands axes and checks every case. Throws
/// InputError.
Deck read_deck(const std::string& path, const std::vector<std::string>& overrides, const Job& job);
/// Reads a deck from text in memory; messages name `path`.
Deck make_deck(const std::string& text,
    const std::string& path,
    const std::vector<std::string>& overrides,
    const Job& job);
/// A case in one canonical line of key=value pairs: the identity used for resuming and comparing.
std::string identity(const Case& c);
}  // namespace minitaw::deck

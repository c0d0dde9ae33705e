// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <iterator>
#include "fixtures.hpp"
#include "harness/cases.hpp"

namespace minitaw::harness::tests {
/// A job of all ranks that executes cases.
class Job : public ::testing::Test {
protected:
  /// A small case: a schedule, then what a deck says beside the sizes below.
  Case case_of(const std::string& text) const {
    using Words = std::istream_iterator<std::string>;
    std::istringstream words("schedule=" + text);
    const std::string sizes = fmt::format(
        "layers = {}\nhidden = 24\nheads = 4\nkv_heads = 2\nffn = 40\nvocab = 29\nseq = 13\n"
        "micro_batch = 2\nsteps = 2\nwarmup = 1\nseed = 11\n",
        ranks_ + 1);
    const deck::Job all{ranks_, {}, true};
    return deck::make_deck(sizes, MINITAW_DATA "/deck.toml", {Words(words), Words()}, all)
        .cases.at(0);
  }

  /// Of a table with the ranks and the settings of a case in each row, the settings of this number
  /// of ranks.
  std::vector<std::string> rows_of(const std::string& table) const {
    std::istringstream lines(table);
    std::vector<std::string> found;
    int ranks = 0;
    for (std::string text; lines >> ranks && std::getline(lines >> std::ws, text);)
      if (ranks == ranks_)
        found.push_back(text);
    EXPECT_TRUE(lines.eof()) << "a row without ranks";
    return found;
  }

  /// Rank 0 judges.
  Training reference_of(const Case& c) const {
    return rank_ == 0 ? serial_reference(c, c.steps) : Training{};
  }

  /// What is wrong with the case, by rank 0; empty: nothing.
  [[nodiscard]] std::string failure(const Check& check, const Case& c) const {
    return rank_ == 0 ? check.failure(serial_tolerance(c)) : "";
  }

  CaseRunner job_ = job();
  int rank_ = job_.rank(), ranks_ = job_.ranks();
};
}  // namespace minitaw::harness::tests

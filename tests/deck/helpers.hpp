// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <iterator>
#include <numeric>
#include <sstream>
#include "deck/deck.hpp"
#include "fixtures.hpp"

namespace minitaw::deck {
/// The smallest deck that is complete.
inline const std::string small = "layers = 8\nhidden = 64\nheads = 4\nseq = 128\n";

inline Job planned(int ranks = 4) {
  return Job{ranks, {}, true};
}

inline Deck make(const std::string& text,
    const std::vector<std::string>& overrides = {},
    const Job& job = planned()) {
  return make_deck(text, "d.toml", overrides, job);
}

/// The message with which a deck is refused; fails the test if it is not.
inline std::string refusal(const std::string& text,
    const std::vector<std::string>& overrides = {},
    const Job& job = planned()) {
  const std::string message = test::refusal_of([&] { (void)make(text, overrides, job); });
  EXPECT_NE(message, "") << "accepted:\n" << text;
  EXPECT_EQ(message.find('\n'), std::string::npos) << "not one line: " << message;
  return message;
}

/// The rows of a table: one a line, cells between bars.
inline std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty())
      continue;
    std::vector<std::string>& row = rows.emplace_back();
    for (std::istringstream cells(line); std::getline(cells, row.emplace_back(), '|');) {}
    row.resize(5);
  }
  return rows;
}

/// "layers=8 seq=64" as overrides.
inline std::vector<std::string> words_of(const std::string& text) {
  using Words = std::istream_iterator<std::string>;
  std::istringstream words(text);
  return {Words(words), Words()};
}
}  // namespace minitaw::deck

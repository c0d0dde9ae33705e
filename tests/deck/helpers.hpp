// SPDX-License-Identifier: BSD-3-Clause
#pragma once
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
}  // namespace minitaw::deck

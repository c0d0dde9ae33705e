// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
const std::string good = R"(# a sweep
schedule = ["ddp", "tawpipe:cco=off"]
ranks = [2, 4]
groups = [1, 2, "1+1"]
layers = 8
hidden = "1K"
heads = 8
dtype = "bf16"
seq = [64, "1K"]
tokens_per_micro_batch = "1K"
learning_rate = 1e-3
)";

const std::vector<std::string> pieces = {"[",
    "\"",
    "=",
    "\n",
    ",",
    "9999999G",
    "-1",
    "1e30",
    "nan",
    "true",
    "[a]\n",
    "#",
    "{}",
    "\xff",
    "\\u0000",
    "1979-05-27",
    "serial"};

class Mutator {
public:
  std::string mutate(std::string text) {
    for (std::size_t n = 1 + below(3); n > 0; --n)
      step(text);
    return text;
  }

private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, std::max<std::size_t>(end, 1) - 1)(
        random_);
  }

  void step(std::string& text) {
    const std::string& piece = pieces[below(pieces.size())];
    const std::size_t at = below(text.size());
    const std::size_t equals = text.find("= ", at);
    switch (below(4)) {
    case 0: text.insert(at, piece); break;
    case 1: text.erase(at, 1 + below(12)); break;
    case 2: text.replace(at, 1, 1, static_cast<char>(below(256))); break;
    default:  // a value that replaces another reaches deeper than damage to the syntax
      if (equals != text.npos)
        text.replace(equals + 2, text.find('\n', equals) - equals - 2, piece);
    }
  }

  std::mt19937 random_{20260718};
};

/// Whether it is accepted. A refusal is one line; anything else that is thrown fails the test.
bool accepted(const std::string& text, const std::vector<std::string>& overrides) {
  try {
    EXPECT_FALSE(make(text, overrides).cases.empty()) << text;
    return true;
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(!message.empty() && std::ranges::none_of(message, [](unsigned char c) {
      return c < 0x20 || c == 0x7f;
    })) << text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << "\nfor the deck:\n" << text;
  }
  return false;
}

TEST(Fuzz, DamagedDecksAndOverridesParseOrAreRefused) {
  const std::vector<std::string> overrides = {
      "seq= 1K,2K", "groups= 1+2", "schedule= tawpipe:cco=off", "heads= [4, 8]"};
  EXPECT_TRUE(accepted(good, {}));
  Mutator mutator;
  int taken = 0;
  constexpr int rounds = 3000;
  for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
    taken += accepted(mutator.mutate(good), {}) ? 1 : 0;
    (void)accepted(small, {mutator.mutate(overrides[i % overrides.size()])});
  }
  EXPECT_GT(taken, rounds / 100) << "both sides must be reached";
  EXPECT_LT(taken, rounds / 2);
}
}  // namespace
}  // namespace minitaw::deck

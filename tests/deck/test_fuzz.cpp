// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
const std::string good = "# a sweep\nschedule = [\"ddp\", \"tawpipe:cco=off\"]\nranks = [2, "
                         "4]\ngroups = [1, 2, \"1+1\"]\nlayers = 8\n"
                         "hidden = \"1K\"\nheads = 8\nkv_heads = 2\nvocab = 300\nffn = 96\ndtype = "
                         "\"bf16\"\nseq = [64, \"1K\"]\n"
                         "tokens_per_micro_batch = \"1K\"\nmicro_batches_per_rank = 4\nrecompute = "
                         "\"none\"\nsteps = 3\nwarmup = 1\n"
                         "seed = 7\nlearning_rate = 1e-3\ndata = \"synthetic\"\n";

class Mutator {
public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (std::size_t n = 1 + below(3); n > 0; --n)
      step(text);
    return text;
  }

private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }

  void step(std::string& text) {
    static const std::vector<std::string> pieces = {"[",
        "]",
        "\"",
        "=",
        "\n",
        ",",
        "9999999G",
        "-1",
        "1e30",
        "nan",
        "inf",
        "0",
        "+",
        "true",
        "[a]\n",
        "#",
        "1K",
        ".",
        "{}",
        "0x7f",
        std::string(1, 0),
        "\xff",
        "\\u0000",
        "1979-05-27",
        "serial",
        "99999999999"};
    const std::size_t at = text.empty() ? 0 : below(text.size());
    switch (below(5)) {
    case 0: text.insert(at, pieces[below(pieces.size())]); break;
    case 1: text.erase(at, 1 + below(12)); break;
    case 2:
      if (!text.empty())
        text[at] = static_cast<char>(below(256));
      break;
    case 3: text.insert(at, text.substr(text.empty() ? 0 : below(text.size()), below(40))); break;
    default: replace_word(text, pieces[below(pieces.size())]);
    }
  }

  /// A value that replaces another reaches deeper than damage to the syntax.
  void replace_word(std::string& text, const std::string& piece) {
    const std::size_t equals = text.find("= ", text.empty() ? 0 : below(text.size()));
    if (equals == std::string::npos)
      return;
    text.replace(equals + 2, text.find('\n', equals) - equals - 2, piece);
  }

  std::mt19937 random_;
};

/// 0: refused, 1: accepted; anything else that is thrown fails the test.
int outcome(const std::string& text, const std::vector<std::string>& overrides) {
  try {
    const Deck deck = make(text, overrides);
    EXPECT_FALSE(deck.cases.empty()) << text;
    return 1;
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_FALSE(message.empty());
    for (const unsigned char c : message)
      EXPECT_TRUE(c >= 0x20 && c != 0x7f) << text;  // one line
    return 0;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << "\nfor the deck:\n" << text;
    return 0;
  }
}

TEST(Fuzz, DamagedDecksParseOrAreRefused) {
  ASSERT_EQ(outcome(good, {}), 1);
  Mutator mutator(20260718);
  int accepted = 0;
  constexpr int rounds = 4000;
  for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i)
    accepted += outcome(mutator.mutate(good), {});
  // Both sides must be reached, or the mutations test nothing.
  EXPECT_GT(accepted, rounds / 100);
  EXPECT_LT(accepted, rounds / 2);
}

TEST(Fuzz, DamagedOverridesParseOrAreRefused) {
  const std::vector<std::string> overrides = {"seq=1K,2K",
      "groups=1+2",
      "schedule=tawpipe:cco=off",
      "heads=[4, 8]",
      "ffn=1,2",
      "learning_rate=1e-3"};
  Mutator mutator(7);
  for (int i = 0; i < 4000 && !testing::Test::HasFailure(); ++i)
    outcome(small, {mutator.mutate(overrides[static_cast<std::size_t>(i) % overrides.size()])});
}
}  // namespace
}  // namespace minitaw::deck

// SPDX-License-Identifier: BSD-3-Clause
// What minitaw_kernels does beside timing: that --verify can fail, which shapes a deck has, and
// what it refuses.
#include <fstream>
#include <gmock/gmock.h>
#include "base/error.hpp"
#include "plan.hpp"

namespace minitaw::bench {
namespace {
using ::testing::HasSubstr, ::testing::Not;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double error_of(const std::vector<double>& found, const std::vector<double>& expected) {
  Comparison comparison;
  comparison.add(found, expected);
  return comparison.error();
}

TEST(Comparison, CountsOneWrongElementInFull) {
  std::vector<double> expected(100'000, 1), found = expected;
  EXPECT_EQ(error_of(found, expected), 0);
  found[777] = 1.5;
  EXPECT_NEAR(error_of(found, expected), 0.25, 1e-9);
  found[777] = nan;
  EXPECT_EQ(error_of(found, expected), std::numeric_limits<double>::infinity());
  EXPECT_EQ(error_of({}, {}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(error_of({0, 0}, {0, 0}), 0);
}

/// A kernel that writes `result` where 1 is right.
Kernel writing(const std::string& name, double result) {
  const auto made = [result] {
    const auto cell = std::make_shared<double>();
    return Problem{.reset = [=] { *cell = nan; },
        .run = [=] { *cell = result == 0 ? *cell : result; },
        .error = [=] { return error_of({*cell}, {1}); }};
  };
  return {name, "T=1", model::Dtype::fp32, {}, 1e-3, made, name};
}

/// Number of wrong kernels, and what was printed.
std::pair<int, std::string> verified(const Kernels& kernels) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  const int wrong = verify(kernels, file.get());
  std::string text(static_cast<std::size_t>(std::ftell(file.get())), ' ');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return {wrong, text};
}

TEST(Verify, NamesKernelsThatAreOff) {
  const auto [wrong, text] = verified({writing("right", 1.0001),
      writing("off", 1.1),
      writing("forgetful", 0),
      writing("broken", nan)});
  EXPECT_EQ(wrong, 3);
  EXPECT_THAT(text, HasSubstr("1 of 4 kernels are right"));
  for (const char* name : {"off", "forgetful", "broken"})
    EXPECT_THAT(text, HasSubstr(std::string("WRONG: ") + name + " at T=1"));
  EXPECT_THAT(text, Not(HasSubstr("WRONG: right")));
  EXPECT_EQ(verified({writing("right", 1)}).first, 0);
}

std::vector<Shape> shapes(const std::vector<std::string>& words) {
  return shapes_of(read_options(words));
}

TEST(Shapes, AreTheDistinctOnesOfADeck) {
  const std::string deck = ::testing::TempDir() + "benchmark_plan_deck.toml";
  std::ofstream(deck)
      << "schedule = ['ddp', 'tawpipe']\nranks = [1, 2]\nlayers = 3\nhidden = 64\nheads = 2\nvocab "
         "= 50\n"
         "ffn = [96, 128]\nseq = [8, 16]\nmicro_batches = 4\ndata = 'synthetic'";
  const std::vector<Shape> found = shapes({"--deck", deck});
  EXPECT_EQ(found.size(), 4);  // two widths by two lengths
  for (const Shape& shape : found)
    EXPECT_EQ(shape.layers, 1);
  EXPECT_EQ(shapes({"--deck", deck, "--tokens", "33"}).size(), 2);
  const std::vector<Shape> set = shapes({"--deck", deck, "--set", "seq=5", "--ffn", "7"});
  ASSERT_EQ(set.size(), 1);
  EXPECT_EQ(std::tuple(set[0].seq, set[0].ffn), std::tuple(5, 7));
}

TEST(CommandLine, RefusesWhatMakesNoSense) {
  const std::vector<std::vector<std::string>> wrong = {{"--size", "3"},
      {"--tokens"},
      {"--tokens", "0"},
      {"--tokens", "3x"},
      {"--tokens", "-1"},
      {"--heads", "7"},
      {"--kv-heads", "3"},
      {"--dtype", "fp16"},
      {"--set", "seq=3"},
      {"--deck", "/no.toml"},
      {"--tokens", "1e3"},
      {"33"},
      {"--vocab", "9999999999"},
      {"--verify", "--markdown", "table.md"}};
  for (const auto& words : wrong)
    EXPECT_THROW((void)shapes(words), InputError) << words[0];
}
}  // namespace
}  // namespace minitaw::bench

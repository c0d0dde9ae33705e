// SPDX-License-Identifier: BSD-3-Clause
// What minitaw_kernels does beside timing: that --verify can fail, which shapes a deck has, and
// what it refuses.
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <sstream>
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

TEST(Verify, NamesKernelsThatAreOff) {
  const Kernels kernels = {writing("right", 1.0001),
      writing("off", 1.1),
      writing("forgetful", 0),
      writing("broken", nan)};
  std::FILE* const file = std::tmpfile();
  EXPECT_EQ(verify(kernels, file), 3);
  std::rewind(file);
  std::string text(1000, ' ');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_THAT(text, HasSubstr("1 of 4 kernels are right"));
  for (const char* name : {"off", "forgetful", "broken"})
    EXPECT_THAT(text, HasSubstr(std::string("WRONG: ") + name + " at T=1"));
  EXPECT_THAT(text, Not(HasSubstr("WRONG: right")));
}

std::vector<Shape> shapes(const std::string& line) {
  std::istringstream words(line);
  return shapes_of(read_options({std::istream_iterator<std::string>(words), {}}));
}

TEST(Shapes, AreTheDistinctOnesOfADeck) {
  const std::string file = ::testing::TempDir() + "benchmark_plan_deck.toml";
  const std::string deck = "--deck " + file;
  std::ofstream(file) << "schedule = ['ddp', 'tawpipe']\nranks = [1, 2]\nlayers = 3\nhidden = 64\n"
                         "heads = 2\nffn = [96, 128]\nseq = [8, 16]\nmicro_batches = 4";
  const std::vector<Shape> found = shapes(deck);
  EXPECT_EQ(found.size(), 4);  // two widths by two lengths
  EXPECT_EQ(found[0].layers, 1);
  EXPECT_EQ(shapes(deck + " --tokens 33").size(), 2);
  EXPECT_EQ(shapes(deck + " --tokens 33 --ffn 7 --set head_dim=8,16,32").size(), 3);
  const std::vector<Shape> set = shapes(deck + " --set seq=5 --ffn 7");
  ASSERT_EQ(set.size(), 1);
  EXPECT_EQ(std::tuple(set[0].seq, set[0].ffn), std::tuple(5, 7));
}

TEST(CommandLine, RefusesWhatMakesNoSense) {
  for (const char* line : {"--size 3",
           "--tokens",
           "--tokens 0",
           "--tokens 1e3",
           "--heads 7",
           "--kv-heads 3",
           "--dtype fp16",
           "--set seq=3",
           "--deck /no.toml",
           "33",
           "--vocab 9999999999",
           "--verify --markdown table.md"})
    EXPECT_THROW((void)shapes(line), InputError) << line;
}
}  // namespace
}  // namespace minitaw::bench

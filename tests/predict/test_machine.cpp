#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "predict/machines.hpp"

namespace minitaw::predict {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    (void)parse_machine(text, "m.toml");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  return text.replace(text.find(old), old.size(), with);
}

TEST(Machine, ReadsUnits) {
  const Machine m = parse_machine(R"(
nodes = 2
ranks_per_node = 4
[device]
memory_rate = "2 TB/s"
memory = "80 GB"
overhead = "5us"
[device.bf16]
peak = "989 TFLOP/s"
products = [["1 GFLOP", "50 TFLOP/s"], ["100 GFLOP", "250 TFLOP/s"]]
attention = "300 TFLOP/s"
actions.loss = "100 TFLOP/s"
[inside]
kind = "pairs"
rate = "25 GiB/s"
latency = "2 us"
[between]
adapters = 2
rate = "100 Gbit/s"
latency = "0.5 ms"
)",
                                  "m.toml");
  EXPECT_EQ(m.ranks(), 8);
  EXPECT_EQ(m.memory, 80'000'000'000U);
  EXPECT_DOUBLE_EQ(m.memory_rate, 2e12);
  EXPECT_DOUBLE_EQ(m.overhead, 5e-6);
  EXPECT_EQ(m.inside, Inside::pairs);
  EXPECT_DOUBLE_EQ(m.inside_rate, 25.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(m.rate, 12.5e9);
  EXPECT_DOUBLE_EQ(m.latency, 5e-4);
  const Speed& speed = m.speeds.at(model::Dtype::bf16);
  EXPECT_DOUBLE_EQ(speed.products.at(1e8), 50e12);
  EXPECT_DOUBLE_EQ(speed.products.at(1e10), 150e12);  // half way on a logarithmic scale
  EXPECT_DOUBLE_EQ(speed.products.at(1e12), 250e12);
  EXPECT_DOUBLE_EQ(speed.attention_backward.at(1), 300e12);
  EXPECT_DOUBLE_EQ(speed.actions.at(schedule::Kind::loss), 100e12);
  EXPECT_EQ(m.adapter_of(0), 0);
  EXPECT_EQ(m.adapter_of(3), 1);
  EXPECT_EQ(m.adapter_of(4), 2);
}

TEST(Machine, EveryFileOfTheRepositoryIsValid) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(MINITAW_SOURCE_DIR "/inputs/machines")) {
    EXPECT_NO_THROW((void)read_machine(file.path(), {})) << file.path();
    ++files;
  }
  EXPECT_GT(files, 2);
}

TEST(Machine, TakesChanges) {
  const Machine m = parse_machine(machine_text(2, 2), "m.toml",
                                  {"nodes=3", "between.rate=25 Gbit/s", "device.fp32.peak=2 TFLOP/s"});
  EXPECT_EQ(m.nodes, 3);
  EXPECT_DOUBLE_EQ(m.rate, 25e9 / 8);
  EXPECT_DOUBLE_EQ(m.speeds.at(model::Dtype::fp32).peak, 2e12);
}

/// What is wrong, what is put in its place, and what the sentence says behind "m.toml".
TEST(Machine, RefusesInOneSentence) {
  struct Bad {
    std::string old, now, sentence;
  };
  const std::string good = machine_text(2, 2), rate = "rate = \"100 MB/s\"";
  ASSERT_EQ(refusal(good), "accepted");
  const std::string tree = rate + "\ntopology = \"fat tree\"", fly = rate + "\ntopology = \"dragonfly\"\n";
  for (const auto& [old, now, sentence] : std::vector<Bad>{
           {rate, "rate = \"100\"",
            ":11: between.rate is \"100\", which has no unit; write for example \"10 Gbit/s\""},
           {rate, "rate = 100", ":11: between.rate has no unit; write for example \"10 Gbit/s\""},
           {rate, "rate = \"-1 MB/s\"", ":11: between.rate is \"-1 MB/s\", which is not above zero"},
           {rate, "rate = \"0 MB/s\"", "which is not above zero"},
           {rate, "rate = \"nan MB/s\"", "which does not begin with a number"},
           {rate, "rate = \"fast\"", "which does not begin with a number"},
           {rate, "rate = \"100 us\"", "which has a unit that does not fit"},
           {rate, "", "between.rate is missing; write for example \"10 Gbit/s\""},
           {rate, rate + "\nlatency = \"-1 us\"", "between.latency is \"-1 us\", which is below zero"},
           {rate, rate + "\nadapters = 3", "between.adapters are 3, more than the 2 ranks of a node"},
           {rate, tree, "between.leaf is missing: a whole number"},
           {rate, fly + "groups = 1\nrouters = 1", ": a dragonfly of one router is a switch"},
           {rate, rate + "\nleaf = 2", "between.leaf is no key of a machine"},
           {"[inside]\n", "[inside]\nlatenzy = \"1 us\"\n",
            ":9: inside.latenzy is no key of a machine; did you mean \"latency\"?"},
           {"[inside]\n", "[inside]\nkind = \"swich\"\n", "is \"swich\"; did you mean \"switch\"?"},
           {"nodes = 2", "nodes = 0", ":1: nodes must be a whole number from 1"},
           {"nodes = 2", "nodes = 2.5", ":1: nodes must be a whole number from 1"},
           {"nodes = 2\n", "", "nodes is missing: a whole number"},
           {"fp32", "fp64", "device.bf16 is missing: a table with the device's rates in a precision"},
           {"\"1 TFLOP/s\"", "[]", "device.fp32.products is an empty list"},
           {"\"1 TFLOP/s\"", "[[\"2 FLOP\", \"1 FLOP/s\"], [\"1 FLOP\", \"1 FLOP/s\"]]",
            "device.fp32.products must have sizes in ascending order"},
           {"[inside]", "[inside", ":8: not TOML"}}) {
    const std::string said = refusal(replaced(good, old, now));
    EXPECT_THAT(said, testing::StartsWith("m.toml:")) << now;
    EXPECT_THAT(said, HasSubstr(sentence)) << now;
    EXPECT_THAT(said, testing::Not(HasSubstr("\n"))) << now;
  }
}

}  // namespace
}  // namespace minitaw::predict

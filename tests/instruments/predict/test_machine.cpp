// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include "fixtures.hpp"
#include "machines.hpp"

namespace minitaw::predict {
namespace {
TEST(MachineFile, HasUnitsPrefixesAndChanges) {
  const Machine m =
      parse_machine("nodes = 2\nranks_per_node = 4\n[device]\nmemory_rate = '2 PB/s'\n"
                    "overhead = '5us'\n[device.bf16]\npeak = '989 TFLOP/s'\n"
                    "products = [['1 GFLOP', '50 TFLOP/s'], ['100 GFLOP', '250 TFLOP/s']]\n"
                    "attention = '300 kFLOP/s'\n[inside]\nrate = '25 GiB/s'\nlatency = '2 ns'\n"
                    "[between]\nrate = '1 B/s'\n",
          "m.toml",
          {"nodes=3", "between.rate=25 Gbit/s", "device.bf16.peak=2 MiFLOP/s"});
  EXPECT_EQ(m.ranks(), 12);
  const DeviceSpeed& speed = m.speeds.at(model::Dtype::bf16);
  for (const auto& [found, expected] : {std::pair{m.memory_rate, 2e15},
           {m.overhead, 5e-6},
           {m.inside_rate, 25.0 * (1 << 30)},
           {m.inside_latency, 2e-9},
           {m.rate, 25e9 / 8},
           {speed.peak, 2.0 * (1 << 20)},
           {speed.products.at(1e8), 50e12},
           {speed.products.at(1e10), 150e12},  // half way on a logarithmic scale
           {speed.products.at(1e12), 250e12},
           {speed.attention_backward.at(1), 300e3}})
    EXPECT_DOUBLE_EQ(found, expected);
}

TEST(MachineFile, OfEachMachineOfTheRepositoryIsValid) {
  for (const auto& file :
      std::filesystem::directory_iterator(MINITAW_SOURCE_DIR "/inputs/machines"))
    EXPECT_GT(read_machine(file.path()).ranks(), 1) << file.path();
}

/// What is replaced, by what, and what the sentence says.
TEST(MachineFile, IsRefusedInOneSentence) {
  const std::string rate = "rate = \"100 MB/s\"", speed = "\"1 TFLOP/s\"", inside = "[inside]\n";
  for (const auto& [old, now, words] : Rows<std::string, std::string, std::vector<std::string>>{
           {rate, "rate = '100'", {"m.toml:4: between.rate", "\"100\"", "\"10 Gbit/s\""}},
           {rate, "rate = 'nan MB/s'", {"between.rate"}},
           {rate, "rate = '1 us'", {"between.rate", "1 us"}},
           {rate, "", {"between.rate is missing"}},
           {rate, rate + "\nadapters = 3", {"between.adapters are 3", "2 ranks"}},
           {inside, inside + "latenzy = '1 us'\n", {"inside.latenzy", "\"inside.latency\"?"}},
           {inside, inside + "kind = 'swich'\n", {"\"swich\"", "\"switch\"?"}},
           {inside + "rate = \"1 GB/s\"", "", {"inside.rate is missing"}},
           {"nodes = 2", "nodes = 2.5", {"m.toml:1: nodes", "whole number"}},
           {"products = ", "peak = ", {"device.fp32.products is missing"}},
           {speed, "[['2 FLOP', '1 FLOP/s'], ['2 FLOP', '1 FLOP/s']]", {"products", "ascending"}},
           {inside, "[inside", {"m.toml:9: not TOML"}}}) {
    std::string text = machine_text(2, 2);
    text.replace(text.find(old), old.size(), now);
    EXPECT_THAT(test::refusal_of([&] { (void)parse_machine(text, "m.toml"); }),
        testing::AllOf(test::Says(words), testing::Not(testing::HasSubstr("\n"))));
  }
  EXPECT_THAT(test::refusal_of([] { (void)machine(2, 2, {"between.rate=1"}); }),
      test::Says({"--machine-set:1: between.rate"}));
}
}  // namespace
}  // namespace minitaw::predict

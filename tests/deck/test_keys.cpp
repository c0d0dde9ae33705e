// SPDX-License-Identifier: BSD-3-Clause
// Every key: what it stores, what it refuses, and that cases which differ in it are two cases.
#include <set>
#include <sstream>
#include "deck/keys.hpp"
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
using testing::Contains, testing::HasSubstr, test::Says;

std::set<std::string> names_of_keys() {
  std::set<std::string> names;
  for (const Setting& key : keys())
    names.insert(key.name);
  return names;
}

/// Key, two values, what the identity says of the second one (left out: that the key has it;
/// nothing, if both are one case), settings of both.
TEST(Identity, TellsTwoValuesOfEveryKeyApart) {
  std::set<std::string> seen;
  for (const auto& row : rows_of(R"(
schedule|ddp|tawpipe:grad_ticks=2
ranks|2|4
groups|2|1+2+*|groups=1+2+1
group_size|1|2|groups=2+2
replicas|1|2
context|1|2
layers|8|9
hidden|64|72
heads|4|8
head_dim|16|32
kv_heads|1|2
vocab|300|301
tied|false|true
ffn|17|18
dtype|fp32|bf16
grad_dtype|auto|fp32||dtype=bf16
context_parts|1|2||context=2
context_grad_dtype|auto|fp32||context=2 dtype=bf16
context_grad_dtype|auto|fp32||schedule=1f1b:slices=2 dtype=bf16
recompute|block|keep-attention
attention|auto|portable
transport|auto|mpi
seq|64|2K|seq=2048
micro_batch|1|3
tokens_per_micro_batch|128|256|micro_batch=2
micro_batches|4|12
micro_batches_per_rank|1|3|micro_batches=12
steps|1|5
repeats|1|3|nothing
warmup|0|3
seed|1|99
learning_rate|1e-3|3e-4|learning_rate=0.0003
clip_norm|off|0.75
data|synthetic|a,b.txt
grad_dtype|auto|fp32|nothing
context_parts|1|2|nothing
context_grad_dtype|auto|fp32|nothing|dtype=bf16
)")) {
    const std::string &key = row[0], &value = row[2];
    const auto identity_with = [&](const std::string& given) {
      std::vector<std::string> settings = words_of(row[4]);
      settings.push_back(key + "=" + given);
      return identity(make(small, settings).cases.at(0));
    };
    const std::string one = identity_with(row[1]), other = identity_with(value);
    const std::string says = row[3].empty() ? key + "=" + value : row[3];
    EXPECT_EQ(one == other, says == "nothing") << key;
    EXPECT_THAT(words_of(other + " nothing"), Contains(says));
    seen.insert(key);
  }
  EXPECT_EQ(seen, names_of_keys()) << "a key that no row is about";
}

/// Of every key values that it does not take, and what is said.
TEST(Override, BadOnesAreRefused) {
  std::set<std::string> seen;
  for (const auto& row : rows_of(R"(
schedule=|write for example schedule = 
schedule=tawpip|did you mean "tawpipe"
schedule=tawpipe:cc=off|did you mean "cco"
schedule=tawpipe:prefetch=99|takes 1..8
schedule=tawpipe:rails=65 schedule=tawpipe:rails=01|takes auto or 1..64, not
schedule=tawpipe:dbs=off:rails=2|rails
schedule=1f1b:slices=2:chunks=2|do not go together
schedule=serial:x=1|no options
ranks=1e3 seq=K seq=4KB seq=4.5K seq=--4 seq=٣ seq=true ffn=[[1],2] steps=1,2|is not a whole number; write for example 4096 or "4K"
seq=0 seq=65M seq=9007199254740992K seq=-9999999999G|is out of range
hidden=0 heads=0 kv_heads=0 vocab=0 context_parts=0 micro_batch=0 steps=0 repeats=1001|from 1 to
warmup=-1 seed=-1|from 0 to
learning_rate=nan learning_rate=inf learning_rate=1e-3x learning_rate=1e999 clip_norm=0|above zero
learning_rate=1e300|more than 100
data= seq=[] seq=1K,,2K|a value is empty
groups=3|4 ranks cannot form 3 equal groups
groups=1++2 groups=0+4|neither a number of groups nor their sizes
group_size=3|4 ranks cannot form groups of 3; use
replicas=3|divisor of 4
context=3|groups of 3; use a divisor of 4
layers=2|at least one layer
head_dim=7|it must be even
dtype=bf61|fp32, bf16; did you mean "bf16"
grad_dtype=bf16 context_grad_dtype=bf16|auto, fp32
recompute=all|block, keep-attention, none
tied=yes tied=1|is not one of false, true
attention=flash|auto, host, portable, cudnn
transport=tcp|auto, mpi, nccl
tokens_per_micro_batch=200|not a multiple of seq = 128; use for example 256
micro_batches=7|7 micro-batches evenly among 4 ranks; use a multiple of 4
micro_batches_per_rank=500000|gives micro_batches: 2000000 a step are too many
steps=[1,2]|takes one value
)"))
    for (const std::string& setting : words_of(row[0])) {
      const std::string key = setting.substr(0, setting.find('='));
      EXPECT_THAT(refusal(small, {setting}), Says({key, row[1]})) << setting;
      seen.insert(key);
    }
  EXPECT_EQ(seen, names_of_keys()) << "a key that no row is about";
  EXPECT_THAT(refusal(small, {"seq=64", "seq=128"}), HasSubstr("--set: seq is set twice"));
}

TEST(Override, SizesAndNumbers) {
  for (const auto& [text, size] : std::initializer_list<std::pair<std::string, std::int64_t>>{
           {"3k", 3072}, {"64M", 64 << 20}, {"\"2K\"", 2048}})
    EXPECT_EQ(make(small, {"seq=" + text}).cases[0].shape.seq, size);
  EXPECT_EQ(make(small, {"learning_rate='2e-4'"}).cases[0].learning_rate, 2e-4);
}

TEST(Keys, ExamplesAreValidAndTheHelpNamesEach) {
  for (const Setting& key : keys()) {
    const std::string sizes = "layers=8\nhidden=256\nheads=8\nseq=64\n";
    EXPECT_THAT(help_text(), HasSubstr("\n" + key.name + " ("));
    EXPECT_FALSE(make(sizes,
        {key.example(), key.name == "groups" || key.name == "ranks" ? "seed=2" : "ranks=8"},
        planned(key.name == "groups" ? 6 : 8))
            .cases.empty())
        << key.example();
  }
}

TEST(Docs, KeysPageShowsTheHelpOfTheProgram) {
  std::ostringstream text;
  text << std::ifstream(MINITAW_DOCS "/keys.md").rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("```text\n" + help_text() + "```\n"))
      << "renew the block of docs/keys.md with: minitaw help keys";
}
}  // namespace
}  // namespace minitaw::deck

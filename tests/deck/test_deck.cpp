// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <numeric>
#include <set>
#include <sstream>
#include <tuple>
#include "deck/keys.hpp"
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
using testing::AllOf, testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::SizeIs,
    testing::StartsWith;

Job with_adapters(int adapters, std::vector<int> node_sizes = {2, 2}) {
  const int ranks = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
  return {
      .ranks = ranks, .node_sizes = std::move(node_sizes), .planning = true, .adapters = adapters};
}

/// `auto` is as many as nodes have adapters, at most what two groups can share; a number is kept.
/// Equal cases run once.
TEST(Rails, AreSettledByAdaptersAndGroups) {
  for (const auto& [job, override, schedule] :
      std::initializer_list<std::tuple<Job, const char*, const char*>>{
          {with_adapters(1), "", "tawpipe"},
          {with_adapters(2), "", "tawpipe:rails=2"},
          {with_adapters(2), "schedule=tawpipe:cco=off:rails=auto", "tawpipe:cco=off:rails=2"},
          {with_adapters(2), "schedule=fsdp:hierarchical=on", "fsdp:hierarchical=on"},
          {with_adapters(4), "", "tawpipe:rails=2"},
          {with_adapters(4, {1, 3, 2}), "", "tawpipe:rails=2"},
          {with_adapters(4, {1, 3}), "", "tawpipe"},
          {with_adapters(4, {4}), "", "tawpipe"},  // no other group
          {with_adapters(4), "groups=4", "tawpipe"},
          {with_adapters(4, {4, 4}), "replicas=2", "tawpipe"},  // a copy for each node
          {with_adapters(4), "schedule=tawpipe:dbs=off", "tawpipe:dbs=off"},
          {with_adapters(4), "schedule=tawpipe:gwps=off", "tawpipe:gwps=off"},
          {with_adapters(4), "schedule=tawpipe:rails=1", "tawpipe"},
          {with_adapters(1), "schedule=tawpipe:rails=2", "tawpipe:rails=2"},
          {with_adapters(4), "schedule=tawpipe:dbs=off:rails=1", "tawpipe:dbs=off"}}) {
    const std::vector<std::string> overrides(*override == 0 ? 0 : 1, override);
    EXPECT_EQ(make(small, overrides, job).cases.at(0).schedule, schedule)
        << job.adapters << " " << override;
  }
  const std::vector<std::string> both = {"schedule=tawpipe,tawpipe:rails=1,tawpipe:rails=2"};
  for (const int adapters : {1, 2})
    EXPECT_THAT(make(small, both, with_adapters(adapters)).cases, SizeIs(2));
}

TEST(Deck, Defaults) {
  const Deck deck = make(small);
  ASSERT_THAT(deck.cases, SizeIs(1));
  const Case& c = deck.cases[0];
  EXPECT_EQ(identity(c),
      "schedule=tawpipe ranks=4 groups=4 layers=8 hidden=64 heads=4 kv_heads=4 "
      "vocab=32000 ffn=256 dtype=fp32 recompute=block seq=128 micro_batch=1 "
      "micro_batches=4 steps=10 warmup=2 seed=1 learning_rate=0.001 data=synthetic");
  EXPECT_THAT(deck.notes, IsEmpty());
}

TEST(Deck, EveryKeyIsStored) {
  const Deck deck = make("schedule = 'tawpipe:cco=off'\nranks = 6\ngroups = '1+2+3'\nlayers = "
                         "7\nhidden = '1K'\nheads = 8\nkv_heads = 2\n"
                         "vocab = 300\nffn = 17\ndtype = "
                         "'bf16'\nrecompute = 'keep-attention'\nseq = '4K'\n"
                         "micro_batch = 3\nmicro_batches = 12\ndata = 'text.txt'\nsteps = "
                         "5\nwarmup = 0\nseed = 99\nlearning_rate = 3e-4");
  ASSERT_THAT(deck.cases, SizeIs(1));
  EXPECT_EQ(identity(deck.cases[0]),
      "schedule=tawpipe:cco=off ranks=6 groups=1+2+3 layers=7 hidden=1024 heads=8 kv_heads=2 "
      "vocab=300 "
      "ffn=17 dtype=bf16 recompute=keep-attention seq=4096 micro_batch=3 "
      "micro_batches=12 "
      "steps=5 warmup=0 seed=99 learning_rate=0.0003 data=text.txt");
}

std::vector<std::string> brief(const Deck& deck) {
  std::vector<std::string> lines;
  for (const Case& c : deck.cases)
    lines.push_back(c.schedule + " " + c.groups.text() + " " + std::to_string(c.shape.seq));
  return lines;
}

TEST(Deck, ListsAreAxesAndTheFirstKeyIsSlowest) {
  const Deck deck = make(
      "seq = [1, \"2K\"]\nlayers = 2\nhidden = 8\nheads = 2\nschedule = [\"ddp\", \"tawpipe\"]\n",
      {},
      planned(2));
  EXPECT_THAT(brief(deck), ElementsAre("ddp 2 1", "ddp 2 2048", "tawpipe 2 1", "tawpipe 2 2048"));
}

TEST(Deck, EqualCasesAreKeptOnce) {
  const Deck deck = make(small, {"seq=[1024, \"1K\"]"});
  EXPECT_THAT(deck.cases, SizeIs(1));
  EXPECT_THAT(deck.notes, ElementsAre(HasSubstr("1 combination is equal")));
  EXPECT_THAT(make(small, {"schedule=tawpipe,tawpipe:cco=on"}).cases, SizeIs(1));
}

TEST(Deck, CombinationsThatDoNotFitAreLeftOutWithANote) {
  const Deck deck = make(small, {"ranks=2,4", "groups=1,2,4"});
  EXPECT_THAT(brief(deck),
      ElementsAre("tawpipe 2 128",
          "tawpipe 1+1 128",
          "tawpipe 4 128",
          "tawpipe 2+2 128",
          "tawpipe 1+1+1+1 128"));
  EXPECT_THAT(deck.notes, ElementsAre(HasSubstr("2 ranks cannot form 4 equal groups")));
}

TEST(Deck, WhatIsLeftOutIsCountedByReason) {
  const Deck deck = make(small, {"schedule=ddp,tawpipe,1f1b", "replicas=2", "groups=1,2,3,1+*"});
  EXPECT_THAT(
      brief(deck), ElementsAre("tawpipe 4 128", "tawpipe 2+2 128", "1f1b 4 128", "1f1b 2+2 128"));
  EXPECT_THAT(deck.left_out,
      ElementsAre(StartsWith("left out 3 combinations: groups: 4 ranks cannot form 3 equal groups"),
          "left out 3 combinations: replicas: ddp has no replicas; use replicas = 1",
          StartsWith("left out 2 combinations: replicas: the groups 1+3 do not give 2 replicas")));
  EXPECT_EQ(deck.notes, deck.left_out) << "nothing is told twice";
}

TEST(Deck, HeadsFollowFromTheirWidth) {
  const Deck deck = make("layers = 8\nhidden = [64, 96]\nhead_dim = 16\nseq = 1\n");
  ASSERT_THAT(deck.cases, SizeIs(2));
  EXPECT_EQ(deck.cases[0].shape.heads, 4);
  EXPECT_EQ(std::tuple(deck.cases[1].shape.heads, deck.cases[1].shape.kv_heads), std::tuple(6, 6));
}

TEST(Deck, SerialTakesOneRankAndTheMicroBatchesOfTheOthers) {
  const Deck deck = make(small, {"schedule=serial,ddp", "groups=1,2"});
  ASSERT_THAT(deck.cases, SizeIs(3));
  EXPECT_EQ(std::tuple(deck.cases[0].ranks, deck.cases[0].micro_batches), std::tuple(1, 4));
}

/// ranks, groups, B and M of all cases.
std::vector<std::string> sizes(const Deck& deck) {
  std::vector<std::string> lines;
  for (const Case& c : deck.cases)
    lines.push_back(
        fmt::format("{} {} {} {}", c.ranks, c.groups.text(), c.shape.micro_batch, c.micro_batches));
  return lines;
}

TEST(Deck, KeysThatBelongTogetherFollowOtherAxes) {
  const std::vector<std::string> weak = {"ranks=2,4,6", "group_size=2", "micro_batches_per_rank=3"};
  EXPECT_THAT(sizes(make(small, weak)), ElementsAre("2 2 1 6", "4 2+2 1 12", "6 2+2+2 1 18"));
  const std::vector<std::string> tokens = {
      "seq=256,512,1K", "tokens_per_micro_batch=1K", "micro_batches=16", "ranks=2"};
  EXPECT_THAT(sizes(make(small, tokens)), ElementsAre("2 2 4 16", "2 2 2 16", "2 2 1 16"));
  EXPECT_THAT(sizes(make(small, {"group_size=1,2,4"})),
      ElementsAre("4 1+1+1+1 1 4", "4 2+2 1 4", "4 4 1 4"));
  EXPECT_THAT(
      sizes(make(small, {"schedule=serial", "micro_batches_per_rank=3"})), ElementsAre("1 1 1 12"));
}

TEST(Override, ReplacesAKeyOfTheSameMeaning) {
  const std::string deck =
      small + "group_size = 2\nmicro_batches_per_rank = 1\ntokens_per_micro_batch = 256\n";
  EXPECT_THAT(sizes(make(deck)), ElementsAre("4 2+2 2 4"));
  EXPECT_THAT(sizes(make(deck, {"groups=4", "micro_batches=12"})), ElementsAre("4 1+1+1+1 2 12"));
  EXPECT_THAT(sizes(make(deck, {"micro_batch=3"})), ElementsAre("4 2+2 3 4"));
  EXPECT_THAT(refusal(deck, {"groups=4", "group_size=2"}),
      AllOf(StartsWith("--set: group_size"), HasSubstr("together with groups; keep one")));
}

TEST(Deck, ManyRanksInOneGroupAreNoted) {
  const auto notes = [](const std::string& override, const Job& job) {
    return make(small, {"layers=24", "ranks=8,24", override}, job).notes;
  };
  EXPECT_THAT(notes("seed=1", planned(0)),
      ElementsAre(AllOf(HasSubstr("all 24 ranks are one group"),
          HasSubstr("nothing lies between nodes"),
          HasSubstr("group_size=8"))));
  for (const char* grouped : {"groups=1", "group_size=8"})
    EXPECT_THAT(notes(grouped, planned(0)), IsEmpty());
  EXPECT_THAT(notes("seed=1", Job{24, {8, 8, 8}, true}), IsEmpty());
  EXPECT_THAT(make(small, {"ranks=8"}, planned(0)).notes, IsEmpty());
}

TEST(Deck, GroupsDefaultToTheNodesOfTheFirstRanks) {
  const Job job{6, {2, 3, 1}, true};
  for (const auto& [ranks, groups] :
      {std::pair{"ranks=6", "2+3+1"}, {"ranks=4", "2+2"}, {"ranks=2", "2"}, {"ranks=8", "8"}})
    EXPECT_EQ(make(small, {ranks}, job).cases[0].groups.text(), groups);
  EXPECT_EQ(make(small, {}, job).cases[0].groups.text(), "2+3+1");
}

TEST(Deck, APlanWithoutAJobNeedsRanks) {
  EXPECT_THAT(refusal(small, {}, planned(0)), HasSubstr("ranks: not given"));
  for (const auto& [given, ranks] :
      {std::pair{"ranks=3", 3}, {"groups=1+2", 3}, {"schedule=serial", 1}})
    EXPECT_EQ(make(small, {given}, planned(0)).cases[0].ranks, ranks) << given;
}

TEST(Override, TomlListsAndWords) {
  for (const char* two : {"seq=1K,2K", "seq=[1K, 2K]", "seq = [1024, 2048]"})
    EXPECT_THAT(make(small, {two}).cases, SizeIs(2));
  EXPECT_EQ(make(small, {"groups=1+3"}).cases[0].groups.text(), "1+3");
  EXPECT_EQ(make(small, {"groups=1+*"}).cases[0].groups.text(), "1+3");
  EXPECT_EQ(make(small, {"groups=1+2+*", "ranks=4"}).cases[0].groups.text(), "1+2+1");
  EXPECT_EQ(make(small, {"data=a,b.txt"}).cases[0].data, "a,b.txt");
  EXPECT_EQ(make(small, {"data=\"x y\""}).cases[0].data, "x y");
}

TEST(Refusal, SaysWhereAndWhat) {
  using Row =
      std::tuple<std::string, std::string, const char*>;  // deck, beginning and part of the message
  for (const auto& [text, where, says] :
      std::vector<Row>{{small + "\n[seqs]\na = 1\n", "d.toml:6: seqs", "no table"},
          {"layers = 8\nhidden = 64\nheads = 5\nseq = 1\n", "d.toml:3: heads", "64"},
          {"layers = 8\nhidden = 12\nheads = 4\nseq = 1\n", "d.toml:2: hidden", "even"},
          {"layers = 8\nhidden = 64\nseq = 1\n", "d.toml: heads: not given", "head_dim"},
          {"layers = 8\nhidden = 64\nhead_dim = 24\nseq = 1\n",
              "d.toml:3: head_dim",
              "hidden = 64"},
          {"layers = 3\nhidden = 64\nheads = 4\nseq = 1\n",
              "d.toml:1: layers: 3",
              "at least one layer"},
          {"layers = 8\nhidden = 64\nheads = 4\n", "d.toml: seq: not given", "add for example"},
          {"# nothing\n", "d.toml: layers: not given", ""},
          {small + "groups = 2\ngroup_size = 2\n", "d.toml:6: group_size", "together with groups"},
          {small + "micro_batch = 2\ntokens_per_micro_batch = 256\n",
              "d.toml:6: tokens_per_micro_batch",
              "together with micro_batch;"},
          {small + "micro_batches = 4\nmicro_batches_per_rank = 1\n",
              "d.toml:6: micro_batches_per_rank",
              "keep one"},
          {small + "data = \"f\"\nvocab = 255\n", "d.toml:6: vocab", "256"},
          {std::string("\x7f"
                       "ELF\x02\x01\0\0\xff\xfe",
               10),
              "d.toml:1: not TOML",
              ""}})
    EXPECT_THAT(refusal(text), AllOf(StartsWith(where), HasSubstr(says))) << text;
}

/// In the line after the smallest deck.
TEST(Refusal, OfAKeyNamesItsLine) {
  for (const auto& [line, where, says] :
      std::initializer_list<std::tuple<const char*, const char*, const char*>>{
          {"hiden = 64", "unknown key \"hiden\"", "did you mean \"hidden\""},
          {"seq = 1", "not TOML", "'seq'"},
          {"seq", "not TOML", "expected"},
          {"micro_batch = 1979-05-27", "micro_batch", "date"},
          {"head_dim = 8", "head_dim", "keep one"},
          {"kv_heads = 3", "kv_heads", "4"},
          {"group_size = 3", "group_size", "4 ranks cannot form groups of 3; use"},
          {"group_size = 0", "group_size", "from 1 to"},
          {"tokens_per_micro_batch = 200",
              "tokens_per_micro_batch",
              "not a multiple of seq = 128; use for example 256"},
          {"micro_batches_per_rank = 500000",
              "micro_batches_per_rank gives micro_batches",
              "2000000 a step are too many"},
          {"groups = \"1+3+*\"", "groups", "add up to 4"},
          {"groups = \"70000+1\"", "groups", "nor their sizes"},
          {"schedule = \"tawpipe:cc=off\"", "schedule", "cco"},
          {"schedule = \"\\u0007\"", "schedule", ""},
          {"micro_batch = 99999999999999999999", "not TOML", ""},
          {"learning_rate = nan", "learning_rate", "above zero"},
          {"data = \"\"", "data", "empty"},
          {"data = \"\\u0000\"", "data", "control character"},
          {"steps = 3.0", "steps", "whole number"},
          {"ffn = [[1], 2]", "ffn", "no array"}})
    EXPECT_THAT(refusal(small + line + "\n"),
        AllOf(StartsWith(std::string("d.toml:5: ") + where), HasSubstr(says)))
        << line;
}

TEST(Override, SizesAndNumbers) {
  for (const auto& [text, size] : std::initializer_list<std::pair<std::string, std::int64_t>>{
           {"1", 1}, {"7", 7}, {"4K", 4096}, {"3k", 3072}, {"1M", 1048576}, {"64M", 64 << 20}})
    EXPECT_EQ(make(small, {"seq=" + text}).cases[0].shape.seq, size);
  for (const auto& [text, number] : std::initializer_list<std::pair<std::string, double>>{
           {"2", 2}, {"1e-3", 1e-3}, {"'3e-4'", 3e-4}})
    EXPECT_EQ(make(small, {"learning_rate=" + text}).cases[0].learning_rate, number);
  for (const char* bad :
      {"K", "4KB", "4.5K", "' 4'", "'4 '", "4K4", "--4", "1e3", "nan", "٣", "'0x10'"})
    EXPECT_THAT(refusal(small, {std::string("seq=") + bad}), HasSubstr("is not a whole number"))
        << bad;
  for (const char* bad : {"0",
           "-1",
           "65M",
           "9999999999G",
           "9007199254740992K",
           "'9223372036854775808'",
           "-9999999999G",
           "'-9223372036854775809'"})
    EXPECT_THAT(refusal(small, {std::string("seq=") + bad}), HasSubstr("is out of range")) << bad;
  for (const char* bad : {"0", "-1.0", "nan", "inf", "fast", "1e-3x", "1e999", "true"})
    EXPECT_THAT(refusal(small, {std::string("learning_rate=") + bad}), HasSubstr("above zero"))
        << bad;
}

/// Of every key a value that it does not take, and what it takes.
TEST(Override, BadOnesAreRefused) {
  for (const auto& [setting, says] : std::initializer_list<std::pair<const char*, const char*>>{
           {"qqqqqqqq=64", "unknown key \"qqqqqqqq\" (minitaw"},
           {"seqq=4", "did you mean \"seq\""},
           {"schedule=", "write for example schedule = "},
           {"schedule=tawpipe:foo=1", "has no option \"foo\""},
           {"schedule=tawpipe:prefetch", "takes 1..8"},
           {"schedule=tawpipe:prefetch=99", "takes 1..8"},
           {"schedule=tawpipe:rails=x", "takes auto or 1..64, not"},
           {"schedule=tawpipe:rails=0", "takes auto or 1..64, not"},
           {"schedule=tawpipe:rails=65", "takes auto or 1..64, not"},
           {"schedule=tawpipe:rails=01", "takes auto or 1..64, not"},
           {"schedule=tawpipe:rails=1..64", "takes auto or 1..64, not"},
           {"schedule=tawpipe:dbs=off:rails=2", "rails"},
           {"schedule=tawpipe:gwps=maybe", "takes on or off, not"},
           {"schedule=serial:x=1", "no options"},
           {"groups=1++2", "neither a number of groups nor their sizes"},
           {"groups=*+1", "neither a number of groups nor their sizes"},
           {"groups=+*", "does not fit 4 ranks"},
           {"groups=\"+4\"", "neither a number of groups nor their sizes"},
           {"groups=0+4", "neither a number of groups nor their sizes"},
           {"groups=1+2", "does not fit 4 ranks; make the sizes add up to 4"},
           {"schedule=tawpip", "did you mean \"tawpipe\""},
           {"groups=1+*+*", "\"1+2+3\""},
           {"groups=4x1", "\"1+2+3\""},
           {"ranks=1e3", "4096 or \"4K\""},
           {"ranks=5000000", "from 1 to"},
           {"replicas=3", "divisor of 4"},
           {"layers=2", "layers"},
           {"vocab=0", "from 1 to"},
           {"dtype=16", "fp32, bf16"},
           {"dtype=bf61", "fp32, bf16; did you mean \"bf16\""},
           {"recompute=all", "block, keep-attention, none"},
           {"attention=flash", "auto, host, portable, cudnn"},
           {"transport=tcp", "auto, mpi, nccl"},
           {"seq=1Q", "\"4K\""},
           {"seq=[]", "empty"},
           {"seq=[[64]]", "whole number"},
           {"seq=64.5", "whole number"},
           {"seq=true", "whole number"},
           {"seq=", "seq: "},
           {"seq=1K,,2K", "seq: "},
           {"seq=1\nheads=3", "seq: "},
           {"steps=0", "from 1 to"},
           {"steps=1,2", "steps: "},
           {"warmup=-1", "from 0 to"},
           {"learning_rate=1e300", "more than 100"}})
    EXPECT_THAT(refusal(small, {setting}), AllOf(StartsWith("--set: "), HasSubstr(says)))
        << setting;
  EXPECT_THAT(refusal(small, {"seq=64", "seq=128"}), HasSubstr("--set: seq is set twice"));
  for (const char* none : {"seq", "=4"})
    EXPECT_THAT(refusal(small, {none}), HasSubstr("key=value"));
}

/// In the end, lists of which no value fits: the reason of the first.
TEST(Deck, RefusalsNameTheScheduleAndCount) {
  for (const auto& [settings, says] :
      std::initializer_list<std::pair<std::vector<std::string>, const char*>>{
          {{"micro_batches=7"},
              "micro_batches: tawpipe cannot share 7 micro-batches evenly among 4 ranks; "},
          {{"micro_batches=1", "schedule=fsdp"},
              "fsdp cannot share 1 micro-batch evenly among 4 ranks; "},
          {{"micro_batches=3", "schedule=zb1", "replicas=2"},
              "zb1 cannot share 3 micro-batches evenly among 2 replicas; "},
          {{"layers=1", "ranks=2"}, "layers: 1 layer is too few for tawpipe on 2 ranks, which"},
          {{"layers=2"}, "layers: 2 layers are too few for tawpipe on 4 ranks, which"},
          {{"groups=2", "ranks=1"}, "groups: 1 rank cannot form 2 equal groups; "},
          {{"schedule=fsdp,tawpipe", "replicas=3,5"}, "cannot be shared by 3 replicas"}})
    EXPECT_THAT(refusal(small, settings), HasSubstr(says));
}

/// What is wrong, and what would be right.
TEST(Deck, RefusalsOfContextSayWhatWouldBeRight) {
  using Says = std::vector<std::string>;
  for (const auto& [settings, says] :
      std::initializer_list<std::pair<std::vector<std::string>, Says>>{
          {{"context=2", "seq=126"},
              {"seq = 126", "context = 2", "4 equal chunks", "multiple of 4"}},
          {{"context=4", "groups=2"}, {"context: 4", "groups 2+2", "a divisor of 2"}},
          {{"context=2", "groups=1+*"},
              {"context: 2", "groups 1+3", "context = 1, or other groups"}},
          {{"context=3"}, {"context: 4 ranks", "groups of 3", "a divisor of 4"}},
          {{"context=8"}, {"context: 4 ranks", "groups of 8", "a divisor of 4"}},
          {{"context=2", "replicas=4", "schedule=fsdp"}, {"context: 2", "groups 1", "context = 1"}},
          {{"context=2", "micro_batches=3"},
              {"micro_batches: tawpipe", "3 micro-batches", "2 context groups", "multiple of 2"}},
          {{"context=2", "schedule=weipipe"}, {"context: weipipe", "at once", "context = 1"}},
          {{"context=2", "schedule=zb1", "layers=1"},
              {"layers: 1 layer", "zb1", "each context group", "layers = 2"}}})
    EXPECT_THAT(refusal(small, settings), test::Says(says)) << settings.back();
  EXPECT_THAT(refusal(small, {"context=0"}), HasSubstr("is out of range"));
}

/// A context group has the micro-batches of one rank, and any number where they visit all ranks.
TEST(Deck, MicroBatchesAreThoseOfContextGroups) {
  const auto of = [](std::vector<std::string> settings) {
    settings.emplace_back("context=1,2,4");
    std::string all;
    for (const Case& c : make(small, settings).cases)
      all += fmt::format("{} ", c.micro_batches);
    return all;
  };
  EXPECT_EQ(of({}), "4 2 1 ");
  EXPECT_EQ(of({"micro_batches_per_rank=3"}), "12 6 3 ");
  EXPECT_EQ(of({"schedule=1f1b", "micro_batches=3"}), "3 3 3 ");
}

/// In a sweep what does not suit is left out with the same sentence.
TEST(Deck, ContextsThatDoNotFitAreLeftOutWithANote) {
  const Deck deck =
      make(small, {"schedule=weipipe,tawpipe", "context=1,2,3", "seq=128,130", "groups=1,2"});
  std::vector<std::string> cases;
  for (const Case& c : deck.cases)
    cases.push_back(fmt::format(
        "{} {} {} {}", c.schedule, c.groups.text(), c.shape.context.count, c.shape.seq));
  EXPECT_THAT(cases,
      testing::UnorderedElementsAre("weipipe 4 1 128",
          "weipipe 4 1 130",
          "weipipe 2+2 1 128",
          "weipipe 2+2 1 130",
          "tawpipe 4 1 128",
          "tawpipe 4 1 130",
          "tawpipe 2+2 1 128",
          "tawpipe 2+2 1 130",
          "tawpipe 4 2 128",
          "tawpipe 2+2 2 128"));
  EXPECT_THAT(deck.notes, testing::Contains(HasSubstr("seq = 130: context = 2")));
  EXPECT_THAT(deck.notes, testing::Contains(HasSubstr("weipipe passes each shard")));
  EXPECT_THAT(deck.left_out, testing::Contains(HasSubstr("context groups of 3")));
}

TEST(Deck, TooManyCasesAreRefusedQuickly) {
  std::string list = "[1";
  for (int i = 2; i <= 400; ++i)
    list += "," + std::to_string(i);
  list += "]";
  EXPECT_THAT(refusal(small, {"seq=" + list, "micro_batch=" + list, "vocab=" + list}),
      HasSubstr("more than 100000"));
}

TEST(Deck, ARunDoesNotExceedTheJob) {
  const Job job{4, {4}, false};
  EXPECT_THAT(refusal(small, {"ranks=5"}, job),
      AllOf(StartsWith("--set: ranks"), HasSubstr("mpiexec -n 5")));
  EXPECT_THAT(refusal(small, {"ranks=2,5"}, job), HasSubstr("mpiexec -n 5"));
  EXPECT_THAT(make(small, {"ranks=2,4"}, job).cases, SizeIs(2));
}

using Files = test::InFolder;

TEST_F(Files, DecksThatCannotBeRead) {
  for (const auto& [path, says] :
      std::initializer_list<std::pair<std::string, const char*>>{{folder_.string(), "is a folder"},
          {(folder_ / "missing").string(), "cannot be read"},
          {write("empty", ""), "is empty"},
          {write("large", std::string(2 << 20, '#')), "larger than 1 MiB"},
          {write("binary", std::string(100, '\0')), "not TOML"},
          {"", "cannot be read"}})
    EXPECT_THAT([&path = path] { (void)read_deck(path, {}, planned()); },
        testing::ThrowsMessage<InputError>(HasSubstr(says)));
}

TEST_F(Files, TheTextIsKeptForTheRecord) {
  const std::string path = write("d.toml", "# mine\n" + small);
  EXPECT_EQ(read_deck(path, {"seq=7"}, planned()).text, "# mine\n" + small);
}

TEST_F(Files, DataMustHoldASequence) {
  const Job job{4, {4}, false};
  const std::string data = write("data", std::string(129, 'x'));
  EXPECT_EQ(make(small, {"data=" + data}, job).cases.at(0).shape.vocab, 256);
  EXPECT_THAT(refusal(small, {"seq=129", "data=" + data}, job), HasSubstr("needs at least 130"));
  for (const std::string& none : {folder_.string(), std::string("missing")})
    EXPECT_THAT(refusal(small, {"data=" + none}, job), HasSubstr("not a file"));
}

TEST(Printable, OneShortLine) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f"), "a?b?[31m?");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 63U);
  EXPECT_EQ(printable("tëxt \u20ac \U0001F600"), "tëxt \u20ac \U0001F600");
  EXPECT_EQ(printable("\u20ac\u20ac\u20ac", 8), "\u20ac\u20ac...");
}

TEST(Identity, TellsEveryKeyApart) {
  // Where the example is the default or does not fit. head_dim is another way to say heads; a case
  // may get more repetitions.
  const std::map<std::string, std::string> others = {{"groups", "groups=2"},
      {"layers", "layers=9"},
      {"hidden", "hidden=72"},
      {"vocab", "vocab=300"},
      {"head_dim", ""},
      {"repeats", ""},
      {"group_size", "group_size=1"},
      {"grad_dtype", ""},
      {"context", "context=2"},
      {"context_grad_dtype", ""},
      {"context_parts", ""},
      {"clip_norm", "clip_norm=0.75"}};
  std::set<std::string> seen{identity(make(small).cases[0])};
  for (const Setting& key : keys()) {
    const auto other = others.find(key.name);
    const std::string change = other == others.end() ? key.example() : other->second;
    if (change.empty())
      continue;
    EXPECT_TRUE(seen.insert(identity(make(small, {change}).cases[0])).second) << change;
  }
  EXPECT_TRUE(seen.insert(identity(make(small, {"clip_norm=1"}).cases[0])).second);
  // In fp32 all gradients are.
  EXPECT_TRUE(
      seen.insert(identity(make(small, {"dtype=bf16", "grad_dtype=fp32"}).cases[0])).second);
  EXPECT_FALSE(seen.insert(identity(make(small, {"grad_dtype=fp32"}).cases[0])).second);
  const auto keys_in_fp32 = [&](const std::string& setting) {
    const Deck deck = make(small, {"context_grad_dtype=fp32", "dtype=bf16", setting});
    return seen.insert(identity(deck.cases[0])).second;
  };
  EXPECT_TRUE(keys_in_fp32("context=2"));
  EXPECT_FALSE(keys_in_fp32("context=1")) << "no rank adds any up";
}

TEST(Keys, ExamplesAndDefaultsAreValidAndTheHelpNamesEach) {
  for (const Setting& key : keys()) {
    const std::string complete =
        std::string("layers=8\nhidden=256\nseq=64\n") + (key.name == "head_dim" ? "" : "heads=8\n");
    CaseDraft draft;
    if (!key.initial.empty()) {
      EXPECT_NO_THROW(key.store(draft, key.initial)) << key.name;
    }
    EXPECT_NE(find_key(key.name), nullptr);
    EXPECT_THAT(help_text(), HasSubstr("\n" + key.name + " ("));
    EXPECT_THAT(key.example(), StartsWith(key.name + " = "));
    EXPECT_THAT(key.doc, SizeIs(testing::Gt(5U)));
    std::vector<std::string> overrides = {key.example()};
    for (const auto& [name, ranks] : {std::pair{"groups", "ranks=6"}, {"group_size", "ranks=8"}})
      if (key.name == name)
        overrides.emplace_back(ranks);
    EXPECT_NO_THROW((void)make(complete, overrides)) << key.example();
  }
}

TEST(Docs, KeysPageShowsTheHelpOfTheProgram) {
  const auto page = std::filesystem::path(MINITAW_DOCS) / "keys.md";
  std::ostringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("```text\n" + help_text() + "```\n"))
      << "renew the block of docs/keys.md with: minitaw help keys";
}

/// Why no job of the usual sizes (0: the deck says its own) can run the deck; empty if one can.
std::string refused_by_all(const std::string& path) {
  std::string why;
  for (const int ranks : {0, 4, 6}) {
    const std::string said = test::refusal_of([&] { (void)read_deck(path, {}, planned(ranks)); });
    if (said.empty())
      return "";
    why += said + "\n";
  }
  return why;
}

TEST(Docs, EveryDeckOfTheRepositoryIsValid) {
  int decks = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(MINITAW_INPUTS)) {
    const bool machine =
        file.path().parent_path().filename() == "machines";  // test_machine.cpp reads those
    if (file.path().extension() != ".toml" || machine)
      continue;
    ++decks;
    EXPECT_EQ(refused_by_all(file.path().string()), "");
  }
  EXPECT_GT(decks, 5);
}
}  // namespace
}  // namespace minitaw::deck

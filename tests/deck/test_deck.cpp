// SPDX-License-Identifier: BSD-3-Clause
// What decks expand to, and why they are refused.
#include <fmt/ranges.h>
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::SizeIs, test::Says;
using Settings = std::vector<std::string>;

TEST(Deck, Defaults) {
  const Deck deck = make(small);
  ASSERT_THAT(deck.cases, SizeIs(1));
  EXPECT_EQ(identity(deck.cases[0]),
      "schedule=tawpipe ranks=4 groups=4 layers=8 hidden=64 heads=4 kv_heads=4 "
      "vocab=32000 ffn=256 dtype=fp32 recompute=block seq=128 micro_batch=1 "
      "micro_batches=4 steps=10 warmup=2 seed=1 learning_rate=0.001 data=synthetic");
  EXPECT_THAT(deck.notes, IsEmpty());
  const Case c = make(small, {"ranks=2", "micro_batch=3", "micro_batches=8"}).cases[0];
  EXPECT_EQ(std::tuple(sequences_of_step(c), tokens_of_step(c)), std::tuple(24, 24 * 128));
}

/// Schedule, groups, replicas, context, H, heads, S, B and M, in the order of their keys; what all
/// cases have in common is left out.
std::string cases_of(const Deck& deck) {
  const auto rows = list_of(deck.cases, [](const Case& c) {
    return words_of(fmt::format("{} {} R{} n{} H{}/{} S{} B{} M{}",
        c.schedule,
        c.groups.text(),
        c.replicas,
        c.shape.context.count,
        c.shape.hidden,
        c.shape.heads,
        c.shape.seq,
        c.shape.micro_batch,
        c.micro_batches));
  });
  const auto texts = list_of(rows, [&](const Settings& row) {
    Settings own;
    for (const int i : indices(row))
      if (std::ranges::any_of(rows, [&](const Settings& other) { return other[i] != row[i]; }))
        own.push_back(row[i]);
    return fmt::format("{}", fmt::join(own, " "));
  });
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// By hand. The first key is the slowest; a value that follows from another key goes with it; equal
/// cases run once; what does not fit is left out, with its reason.
TEST(Deck, ListsAreAxes) {
  for (const auto& row : rows_of(R"(
seq=1,2K schedule=ddp,tawpipe|ddp S1, ddp S2048, tawpipe S1, tawpipe S2048
ranks=2,4 groups=1,2,4|2 M2, 1+1 M2, 4 M4, 2+2 M4, 1+1+1+1 M4|left out 1 combination: groups: 2 ranks cannot form 4 equal groups
schedule=ddp,tawpipe,1f1b replicas=2 groups=1,2,3,1+*|tawpipe 4, tawpipe 2+2, 1f1b 4, 1f1b 2+2|left out 3 combinations: replicas: ddp has no replicas; use replicas = 1
head_dim=16 hidden=64,96|H64/4, H96/4
ranks=2,4,6 group_size=2 micro_batches_per_rank=3|2 M6, 2+2 M12, 2+2+2 M18
seq=256,512,1K tokens_per_micro_batch=1K|S256 B4, S512 B2, S1024 B1
replicas=1,2,4 schedule=serial,tawpipe|serial 1 R1, tawpipe 4 R1, tawpipe 4 R2, tawpipe 4 R4|2 combinations are equal
context=1,2,4 micro_batches_per_rank=3|n1 M12, n2 M6, n4 M3
context=1,2,4 micro_batches=3 schedule=1f1b|n1, n2, n4
schedule=1f1b:slices=1,1f1b:slices=8 seq=7,8|1f1b S7, 1f1b S8, 1f1b:slices=8 S8|left out 1 combination: seq = 7: slices = 8 need a sequence of at least 8
)")) {
    const std::string &cases = row[1], &note = row[2];
    const Deck deck = make(small, words_of(row[0]));
    EXPECT_EQ(cases_of(deck), cases);
    EXPECT_THAT(fmt::format("{}", fmt::join(deck.notes, "\n")), HasSubstr(note));
    EXPECT_EQ(deck.notes.empty(), note.empty()) << cases;
    EXPECT_EQ(deck.left_out.empty(), !note.starts_with("left out")) << cases;
  }
}

/// The case is run once, and a note says why.
TEST(Deck, SaysWhatHasNoEffect) {
  for (const auto& row : rows_of(R"(
schedule=1f1b,1f1b:cut=even|1|no effect in 1 combination: 1f1b:cut=even: sequences pass whole, without slices
schedule=1f1b:slices=2,1f1b:slices=2:cut=even|2|
schedule=tawpipe,tawpipe:rails=2 groups=1,2|3|no effect in 1 combination: tawpipe:rails=2: all ranks are one group
schedule=tawpipe:rails=2,tawpipe:rails=64 groups=2|1|no effect in 1 combination: tawpipe:rails=64: here it is rails=2
schedule=fsdp,fsdp:hierarchical=on:reshard=group groups=1 replicas=1,2|2|no effect in 2 combinations: fsdp:reshard=group: all ranks are one group
schedule=ddp context_parts=1,2|1|no effect in 1 combination: context_parts=2: no ranks share sequences
schedule=ddp context_parts=1,2 context=2|2|
schedule=ddp context_grad_dtype=fp32 dtype=bf16,fp32|2|no effect in 2 combinations: context_grad_dtype=fp32: no ranks or slices share sequences
schedule=1f1b:slices=2 context_grad_dtype=fp32 dtype=bf16,fp32|2|no effect in 1 combination: context_grad_dtype=fp32: dtype is fp32
schedule=ddp grad_dtype=auto,fp32 dtype=fp32|1|no effect in 1 combination: grad_dtype=fp32: dtype is fp32
schedule=serial context=2|1|no effect in 1 combination: context=2: serial runs on one rank
schedule=serial replicas=1,2|1|no effect in 1 combination: replicas=2: serial runs on one rank
)")) {
    const Deck deck = make(small, words_of(row[0]));
    EXPECT_EQ(std::to_string(deck.cases.size()), row[1]) << row[0];
    const bool tells = std::ranges::count(deck.notes, row[2]) == 1;
    EXPECT_EQ(tells, !row[2].empty())
        << row[0] << ": " << fmt::format("{}", fmt::join(deck.notes, "\n"));
  }
}

/// What is given of hidden, heads and their width: heads x width of each case, or a refusal.
TEST(Deck, HeadsAndTheirWidthFollowFromEachOtherOrStandApart) {
  for (const auto& row : rows_of(R"(
hidden=64,96 heads=4|4x16 4x24
hidden=64,96 head_dim=16|4x16 6x16
hidden=64,96 heads=4 head_dim=16|4x16 4x16
hidden=1024 heads=16 head_dim=128|16x128
hidden=64 heads=5 head_dim=6|5x6
hidden=64||heads: not given
hidden=64 heads=5||heads = 5 does not divide hidden = 64; give head_dim too
hidden=66 heads=2||head_dim = 33, of hidden = 66 and heads = 2: it must be even
hidden=64 heads=4 head_dim=7||head_dim = 7, of hidden = 64 and heads = 4: it must be even
hidden=64 head_dim=24||head_dim: 24 does not divide hidden = 64; give heads too
)")) {
    const std::string sizes = "layers = 8\nseq = 128\n";
    if (!row[2].empty()) {
      EXPECT_THAT(refusal(sizes, words_of(row[0])), HasSubstr(row[2]));
      continue;
    }
    std::vector<std::string> found;
    for (const Case& c : make(sizes, words_of(row[0])).cases)
      found.push_back(fmt::format("{}x{}", c.shape.kv_heads, c.shape.head_dim()));
    EXPECT_EQ(found, words_of(row[1])) << row[0];
  }
  EXPECT_EQ(identity(make(small, {"head_dim=16"}).cases[0]), identity(make(small).cases[0]));
}

TEST(Deck, WordsOfOverridesAreListsOrOneValue) {
  for (const char* two : {"seq=1K,2K", "seq = [1024, 2K]"})
    EXPECT_THAT(make(small, {two}).cases, SizeIs(2));
  EXPECT_EQ(make(small, {"data=\"x y\""}).cases[0].data, "x y");
  const std::string deck =
      small + "group_size = 2\nmicro_batches_per_rank = 1\ntokens_per_micro_batch = 256\n";
  EXPECT_EQ(identity(make(deck, {"groups=4", "micro_batches=12", "micro_batch=3"}).cases[0]),
      identity(make(small, {"groups=4", "micro_batches=12", "micro_batch=3"}).cases[0]))
      << "a key of the same meaning replaces another";
}

/// Adapters, nodes, what is set, the schedule: `auto` is as many as nodes have adapters, at most
/// what two groups can share, as any number is.
TEST(Deck, RailsAreSettledByAdaptersAndGroups) {
  for (const auto& row : rows_of(R"(
1|2 2|seed=1|tawpipe
2|2 2|seed=1|tawpipe:rails=2
4|2 2|schedule=tawpipe:cco=off:rails=auto|tawpipe:cco=off:rails=2
4|1 3 2|seed=1|tawpipe:rails=2
4|4|seed=1|tawpipe
4|4 4|replicas=2|tawpipe
4|2 2|schedule=tawpipe:dbs=off|tawpipe:dbs=off
1|2 2|schedule=tawpipe:dbs=off|tawpipe
1|2 2|schedule=tawpipe:rails=2|tawpipe:rails=2
1|2 2|schedule=tawpipe:rails=9|tawpipe:rails=2
)")) {
    const auto nodes = list_of(words_of(row[1]), [](const auto& node) { return std::stoi(node); });
    const Job job{std::reduce(nodes.begin(), nodes.end()), nodes, true, std::stoi(row[0])};
    EXPECT_EQ(make(small, {row[2]}, job).cases.at(0).schedule, row[3]) << row[1];
  }
}

TEST(Deck, GroupsAndRanksComeFromTheJob) {
  const Job nodes{6, {2, 3, 1}, true};
  for (const auto& [setting, groups] :
      {std::pair{"seed=1", "2+3+1"}, {"ranks=4", "2+2"}, {"ranks=8", "8"}})
    EXPECT_EQ(make(small, {setting}, nodes).cases[0].groups.text(), groups);
  EXPECT_THAT(refusal(small, {}, planned(0)), HasSubstr("ranks: not given"));
  for (const auto& [given, ranks] :
      {std::pair{"ranks=3", 3}, {"groups=1+2", 3}, {"schedule=serial", 1}})
    EXPECT_EQ(make(small, {given}, planned(0)).cases[0].ranks, ranks) << given;
  const Job four{4, {4}, false};
  EXPECT_THAT(refusal(small, {"ranks=2,5"}, four), Says({"--set: ranks", "mpiexec -n 5"}));
  EXPECT_THAT(make(small, {"ranks=2,4"}, four).cases, SizeIs(2));
}

TEST(Deck, ManyRanksInOneGroupAreNoted) {
  const auto notes_of = [](const std::string& settings, const std::vector<int>& nodes = {}) {
    return make(small, words_of("layers=24 " + settings), {24, nodes, true}).notes;
  };
  EXPECT_THAT(notes_of("ranks=8,24"), ElementsAre(HasSubstr("all 24 ranks are one group")));
  for (const char* settings : {"ranks=8", "ranks=24 groups=1", "ranks=24 group_size=8"})
    EXPECT_THAT(notes_of(settings), IsEmpty()) << settings;
  EXPECT_THAT(notes_of("ranks=24", {8, 8, 8}), IsEmpty());
}

/// Lines after the smallest deck; where, the key, and why.
TEST(Refusal, OfADeckNamesTheLine) {
  for (const auto& row : rows_of(R"(
[seqs]; a = 1|5: seqs|no table
groups = 2; group_size = 2|6: group_size|together with groups
data = "f"; vocab = 255|6: vocab|256
hiden = 64|5: unknown key "hiden"|did you mean "hidden"
micro_batch = 1979-05-27|5: micro_batch|date
schedule = "\u0007"|5: schedule|control character
ffn = [[1], 2]|5: ffn|no array
)")) {
    std::string lines = row[0];
    std::ranges::replace(lines, ';', '\n');
    EXPECT_THAT(refusal(small + lines), Says({"d.toml:" + row[1], row[2]}));
  }
  for (const auto& [text, says] : {std::pair{"\x7f\x02\x01\xff\xfe", "d.toml:1: not TOML"},
           {"layers = 8\nhidden = 64\nseq = 1\n", "d.toml: heads: not given"},
           {"layers = 8\nhidden = 64\nheads = 4\n", "d.toml: seq: not given; add for example"}})
    EXPECT_THAT(refusal(text), HasSubstr(says));
}

TEST(Refusal, SaysWhatWouldBeRight) {
  for (const auto& row : rows_of(R"(
micro_batches=3 schedule=zb1 replicas=2|micro_batches: zb1|3 micro-batches|2 replicas
layers=4 schedule=zbv|layers: 4 layers|2 shards|layers = 8
schedule=fsdp,tawpipe replicas=3,5|cannot be shared by 3 replicas
groups=1+* schedule=fsdp:hierarchical=on|groups: fsdp|equal|1+3
ranks=2 schedule=serial groups=1+2|groups: "1+2"|add up to 2
context=2 seq=126|seq = 126|context = 2|4 equal chunks|multiple of 4
context=4 groups=2|context: 4|groups of 2+2 ranks cannot|a divisor of 2
context=4 groups=1 replicas=2|context: 4|a group of 2 ranks in each of 2 replicas cannot
schedule=fsdp:hierarchical=on ranks=8 groups=1+3+1+3 replicas=2|groups of 1+3 ranks in each of 2 replicas
context=2 groups=1+*|context: 2|groups of 1+3 ranks|context = 1, or other groups
context=2 micro_batches=3|micro_batches: tawpipe|2 context groups|multiple of 2
context=2 schedule=weipipe|context: weipipe|at once|context = 1
context=2 schedule=zb1 layers=1|layers: 1 layer|zb1|each context group|layers = 2
context=2 context_parts=3|context_parts = 3|kv_heads = 4
schedule=zb1:slices=8 seq=28 context=2|slices = 8 with context = 2|at least 32 tokens
)"))
    EXPECT_THAT(refusal(small, words_of(row[0])), Says({row.begin() + 1, row.end()})) << row[0];
  std::string list = "=[1";
  for (int i = 2; i <= 400; ++i)
    list += "," + std::to_string(i);
  list += "]";
  EXPECT_THAT(refusal(small, {"seq" + list, "micro_batch" + list, "vocab" + list}),
      HasSubstr("more than 100000"));
}

using Files = test::InFolder;

TEST_F(Files, DecksThatCannotBeReadAreRefused) {
  for (const auto& [path, says] : {std::pair{write("empty", ""), "is empty"},
           {write("large", std::string(2 << 20, '#')), "larger than 1 MiB"},
           {write("binary", std::string(100, '\0')), "not TOML"}})
    EXPECT_THAT(test::refusal_of([&] { (void)read_deck(path, {}, planned()); }), HasSubstr(says));
  const std::string text = "# mine\n" + small;
  EXPECT_EQ(read_deck(write("d.toml", text), {"seq=7"}, planned()).text, text);
}

TEST_F(Files, DataMustHoldASequence) {
  const Job job{4, {4}, false};
  const std::string data = write("data", std::string(129, 'x'));
  EXPECT_EQ(make(small, {"data=" + data}, job).cases.at(0).shape.vocab, 256);
  EXPECT_THAT(refusal(small, {"seq=129", "data=" + data}, job), HasSubstr("needs at least 130"));
  EXPECT_THAT(refusal(small, {"data=missing"}, job), HasSubstr("not a file"));
}

TEST(Printable, OneShortLine) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f"), "a?b?[31m?");
  EXPECT_EQ(printable("\u20ac\u20ac\u20ac", 8), "\u20ac\u20ac...");
}

/// Some job of the usual sizes (0: the deck says its own) can run it.
TEST(Docs, EveryDeckOfTheRepositoryIsValid) {
  int decks = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(MINITAW_INPUTS)) {
    const std::filesystem::path& path = file.path();
    if (path.extension() != ".toml" || path.parent_path().filename() == "machines")
      continue;
    ++decks;
    const auto reasons = list_of(std::vector{0, 4, 6}, [&](int ranks) {
      return test::refusal_of([&] { (void)read_deck(path.string(), {}, planned(ranks)); });
    });
    EXPECT_THAT(reasons, testing::Contains(""));
  }
  EXPECT_GT(decks, 5);
}
}  // namespace
}  // namespace minitaw::deck

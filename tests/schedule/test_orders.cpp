// SPDX-License-Identifier: BSD-3-Clause
// Pipelines whose orders are in files: those that PyTorch wrote (tests/schedule/data), our own, and
// bad ones.
#include <fmt/ranges.h>
#include <map>
#include <regex>
#include "fixtures.hpp"
#include "schedule/orders.hpp"
#include "schedule/registry.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
/// "0F3" of every compute action in a file, by a pattern that passes over all else; "\n" ends a
/// row.
std::vector<std::string> actions_in(const std::string& text) {
  static const std::regex action("[0-9]+[FIWB][0-9]+|\n");
  return {std::sregex_token_iterator(text.begin(), text.end(), action), {}};
}

/// A program whose ranks pass activations, as PyTorch writes it (compute_only): a column is a tick.
std::string to_torch_csv(const Program& program) {
  const std::map<Kind, char> letters = {{Kind::forward, 'F'},
      {Kind::backward, 'B'},
      {Kind::backward_input, 'I'},
      {Kind::backward_weight, 'W'}};
  std::string text;
  for (const RankProgram& rank : program.ranks) {
    std::vector<std::string> cells;
    for (const Action& a : rank.actions) {
      if (!is_visit(a.kind))
        continue;
      cells.resize(std::max(cells.size(), static_cast<std::size_t>(a.tick)));
      cells.push_back(fmt::format("{}{}{}", a.shard, letters.at(a.kind), a.micro_batch));
    }
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

Request request_of(const std::string& spec,
    int ranks,
    int micro_batches,
    int layers,
    const std::string& folder,
    int replicas = 1) {
  Request request{
      parse_spec(spec), Groups::equal(ranks, replicas), micro_batches, layers, replicas};
  request.folder = folder;
  return request;
}

/// A folder with the file a.csv.
class Orders : public test::InFolder {
protected:
  void write(const std::string& text) const { InFolder::write("a.csv", text); }

  Request request(int ranks, int micro_batches, int layers, int replicas = 1) const {
    return request_of("csv:file=a.csv", ranks, micro_batches, layers, folder_, replicas);
  }

  /// What check() says.
  static std::string said(const Request& request) {
    return test::refusal_of([&] { check(request); });
  }
};

TEST_F(Orders, OfPyTorchAreProgramsInTheirOrder) {
  for (const auto& [file, ranks, stages, micro_batches] : {std::tuple{"dualpipev_2x5", 2, 4, 5},
           {"zbv_3x6", 3, 6, 6},
           {"interleaved_zero_bubble_2x4", 2, 4, 4},
           {"interleaved_1f1b_3x6_comms", 3, 6, 6}}) {
    const std::string name = fmt::format("{}.csv", file), spec = "csv:file=" + name;
    const Program program =
        build_valid(request_of(spec, ranks, micro_batches, stages, MINITAW_DATA));
    EXPECT_EQ(program.shards, stages);
    EXPECT_EQ(actions_in(to_torch_csv(program)), actions_in(read(MINITAW_DATA "/" + name)));
    (void)build_valid(request_of(spec, 2 * ranks, 2 * micro_batches, stages, MINITAW_DATA, 2));
  }
}

TEST_F(Orders, ComeBackAsTheSamePrograms) {
  for (const char* spec : {"1f1b", "1f1b:chunks=3", "zb1", "zb2", "zbv"})
    for (const auto& [ranks, micro_batches] : {std::pair{1, 1}, {2, 3}, {4, 8}}) {
      const Program program = build(request_of(spec, ranks, micro_batches, 3 * ranks, ""));
      write(to_torch_csv(program));
      Program again = build(request(ranks, micro_batches, 3 * ranks));
      again.schedule = program.schedule;
      EXPECT_EQ(to_text(again), to_text(program));
    }
}

TEST_F(Orders, MayPutStagesAnywhere) {
  write("1F0,,,3F0,3I0,1B0,3W0\n0F0,2F0,,2B0,,,0I0,0W0\n");
  EXPECT_NO_THROW((void)build_valid(request(2, 1, 4)));
}

/// The sum goes with the name, and a file that has changed is refused where the old sum is named.
TEST_F(Orders, AreComparedWithTheDeckAndKnownByTheirSum) {
  using test::Says;
  write("0F0,,0B0,\r\n1F0,1B0\r\n");
  Request right = request(2, 1, 2);
  EXPECT_EQ(said(right) + said(request(4, 2, 2, 2)), "");
  EXPECT_THAT(said(request(3, 1, 4)), Says({"ranks: a.csv", "use ranks = 2"}));
  EXPECT_THAT(said(request(4, 4, 2, 2)), Says({"use micro_batches = 2"}));
  EXPECT_THAT(said(request(2, 1, 1)), Says({"use layers = 2"}));
  right.spec = settled(right, 1).spec;
  EXPECT_THAT(to_text(right.spec), testing::MatchesRegex("csv:file=a.csv:sum=[0-9a-f]+"));
  EXPECT_EQ(said(right), "");
  write("0F0,,0I0,0W0\n1F0,1B0\n");
  EXPECT_THAT(said(right), Says({"it has changed"}));
  std::filesystem::remove(path("a.csv"));
  EXPECT_THAT(said(right), Says({"a.csv cannot be read"}));
}

/// `--set` names it from the working folder; where both folders have one, the deck's counts.
TEST_F(Orders, AreLookedForInTheWorkingFolderToo) {
  const auto before = std::filesystem::current_path();
  write("0F0,,0B0,\r\n1F0,1B0\r\n");
  const auto ranks_of = [&] {
    return build(request_of("csv:file=a.csv", 2, 1, 2, path("deck"))).ranks.size();
  };
  std::filesystem::current_path(path("."));
  EXPECT_EQ(ranks_of(), 2U);
  InFolder::write("deck/a.csv", "0F0,0B0\n");
  EXPECT_THAT(test::refusal_of(ranks_of), testing::StartsWith("ranks: a.csv is for 1"));
  std::filesystem::current_path(before);
}

/// A bad file, where it is wrong, and part of what is said of it.
TEST(TorchCsv, SaysWhereAFileIsWrong) {
  for (const auto& [text, where, says] : {std::tuple{"0F0,0B0\n,,\n", "row 2:", "computes nothing"},
           {"0F0,0X0,0B0", "row 1, column 2:", "\"0X0\" is no action"},
           {"0F0x", "row 1, column 1:", "is no action"},
           {"0F1000000", "row 1, column 1:", "is no action"},
           {"(0F0;0B0)OVERLAP", "row 1, column 1:", "is no action"},
           {"0F0,1F0,1B0,0B0\n1F1,1B1", "row 2, column 1:", "stage 1 is in row 1 too"},
           {"0B0,0F0", "row 1, column 1:", "0B0 follows \"\""},
           {"0F0,0B0,0W0", "row 1, column 3:", "0W0 follows \"FB\""},
           {"0F0,0I0", "row 1:", "stage 0 has \"FI\" of micro-batch 0"},
           {"0F1,0B1", "row 1:", "stage 0 has \"\" of micro-batch 0"},
           {"0F0,0B0\n2F0,2B0", "row 2:", "no rank has stage 1"},
           {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "row 1, column 2:", "0B0 waits for stage 1"},
           {"1F0,0F0,1B0,0B0", "row 1, column 1:", "1F0 waits for stage 0"}})
    EXPECT_THAT(test::refusal_of([file = text] { (void)read_torch_csv(file, "a.csv"); }),
        test::Says({std::string("a.csv, ") + where, says}))
        << text;
}
}  // namespace
}  // namespace minitaw::schedule

// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>
#include "fixtures.hpp"
#include "record/layout.hpp"
#include "record/table.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {
using testing::HasSubstr;

void expect(const Row& row, const std::vector<std::pair<const char*, double>>& figures) {
  for (const auto& [name, value] : figures)
    EXPECT_DOUBLE_EQ(row.real(name), value) << name;
}

void expect_none(const Row& row, const std::vector<const char*>& names) {
  for (const char* name : names)
    EXPECT_TRUE(std::isnan(row.real(name))) << name;
}

TEST(Row, ASampleIsTheSlowestRankAndQuartilesAreInterpolated) {
  CaseResult r = sample_case();
  r.seconds[3][2] = 9.75;                 // its mean is not the median
  std::swap(r.seconds[0], r.seconds[3]);  // the order of the steps does not matter
  const Row row = make_row(r);            // 0.75, 1.75, 2.75, 9.75 s
  expect(row, {{"median_s", 2.25}, {"q1_s", 1.5}, {"q3_s", 4.5}, {"min_s", 0.75}, {"max_s", 9.75}});
  expect(row,
      {{"spread", 3 / 2.25}, {"cv", std::sqrt(50.0 / 3) / 3.75}, {"tokens_per_s", 1536 / 2.25}});
  EXPECT_EQ(row.integer("samples"), 4);
  expect_none(make_row(sample_case("ddp", 1, 1)), {"cv"});
}

/// Of the core and of instruments, each is given once.
TEST(Layout, HasTheColumnsThatCasesHave) {
  const CaseResult r = sample_case();
  std::vector<std::string> given, known;
  for (const Cells& cells : {cells_of(r), sample_columns(r)})
    for (const auto& [name, value] : cells)
      given.emplace_back(name);
  for (const Column& column : empty_row().columns)
    known.emplace_back(column.name);
  EXPECT_THAT(given, testing::UnorderedElementsAreArray(known));
  Row row = empty_row();
  EXPECT_THROW(row.set({{"no_column", 1}}), LogicError);
  EXPECT_THROW(row.set({{"ranks", 1.0}}), LogicError);
}

TEST(Layout, SaysWhereACaseHasTheValueOfAColumn) {
  const Row row = empty_row();
  EXPECT_EQ(row.column("seq").in_case, "settings/seq");
  EXPECT_EQ(row.column("gradient_error").in_case, "verification/gradient_error");
  EXPECT_EQ(row.column("ticks").in_case, "ticks");
  EXPECT_EQ(row.column("median_s").in_case, "");
  EXPECT_TRUE(row.column("seq").is_setting && !row.column("ticks").is_setting);
  EXPECT_EQ(row.column("median_s").units, "s");
}

TEST(Row, SettingsAndWhatCameOfThemHaveTheirNames) {
  CaseResult r = sample_case();
  r.settings.repeats = 13;
  r.settings.seed = 29;
  r.settings.learning_rate = 0.03125;
  r.settings.attention = "host";
  r.settings.transport = "auto";
  r.settings.data = "text.txt";
  r.settings.clip_norm = 0.0625;
  r.settings.shape.dtype = model::Dtype::bf16;
  r.settings.shape.fp32_gradients = true;
  r.max_loss_error = 1e-9;
  r.idle_ticks = {0, 1, 5};
  r.status = Status::wrong;
  r.reason = "because";
  r.bytes_source = "by formula";
  const Row row = make_row(r, 31, 37);
  // Of a block with F = 7 .. 11: norms 2 x 12, matrices 12 (20 + 12 + 3 F); two ends of 23 x 12, a
  // norm of 12.
  const int parameters = 5 * (24 + 12 * 32) + 36 * 45 + 2 * 276 + 12;
  const std::vector<std::pair<const char*, std::string>> expected = {{"case", "31"},
      {"session", "37"},
      {"status", "wrong"},
      {"reason", "because"},
      {"verdict", "INVALID: wrong: because"},
      {"started", "2026-07-18T09:30:00Z"},
      {"schedule", "tawpipe"},
      {"ranks", "3"},
      {"groups", "1+2"},
      {"group_count", "2"},
      {"replicas", "3"},
      {"layers", "5"},
      {"hidden", "12"},
      {"heads", "3"},
      {"kv_heads", "1"},
      {"vocab", "23"},
      {"ffn", "7,8,9,10,11"},
      {"parameters", std::to_string(parameters)},
      {"dtype", "bf16"},
      {"recompute", "block"},
      {"seq", "128"},
      {"micro_batch", "2"},
      {"micro_batch_per_rank", ""},
      {"micro_batches", "6"},
      {"steps", "4"},
      {"repeats", "13"},
      {"warmup", "1"},
      {"seed", "29"},
      {"learning_rate", "0.03125"},
      {"data", "text.txt"},
      {"attention", "host"},
      {"transport", "auto"},
      {"bytes_source", "by formula"},
      {"ticks", "17"},
      {"idle_ticks", "2"},
      {"first_loss", "3"},
      {"last_loss", "2.5"},
      {"gradient_error", "1e-07"},
      {"loss_error", "1e-09"},
      {"attention_used", "portable"},
      {"transport_used", "mpi"},
      {"grad_dtype", "fp32"},
      {"clip_norm", "0.0625"}};
  for (const auto& [name, text] : expected)
    EXPECT_EQ(row.column(name).text(), text) << name;
  r.settings.micro_batch_per_rank = {2, 1, 2};
  r.settings.shape.dtype = model::Dtype::fp32;
  r.bytes_source = "planned";
  EXPECT_EQ(make_row(r).text("micro_batch_per_rank"), "2,1,2");
  EXPECT_EQ(make_row(r).text("dtype") + make_row(r).text("bytes_source"), "fp32planned");
}

TEST(Row, Rates) {
  CaseResult r = sample_case("tawpipe", 128, 3);  // median 1.75 s, 6 x 2 x 128 tokens
  expect_none(make_row(r), {"peak", "mfu"});
  r.peak = 1e9;
  const Row row = make_row(r);
  // Matrices of a block: 12 (20 + 12 + 3 F), F = 7 .. 11; head 23 x 12. Attention 6 L S A.
  const double rate = 1536 / 1.75, matmul = 6.0 * (12 * (5 * 32 + 3 * 45) + 276),
               causal = 6.0 * 5 * 128 * 12;
  const double teraflops = rate * (matmul + causal) * 1e-12;
  expect(row, {{"tokens_per_s", rate}, {"tokens_per_s_rank", rate / 3}, {"peak", 1e-3}});
  EXPECT_NEAR(row.real("tflops_causal"), teraflops, 1e-18);
  EXPECT_NEAR(row.real("tflops_full"), rate * (matmul + 2 * causal) * 1e-12, 1e-18);
  EXPECT_NEAR(row.real("tflops_rank"), teraflops / 3, 1e-18);
  EXPECT_NEAR(row.real("mfu"), teraflops / 3 / 1e-3, 1e-15);
}

TEST(Datasheet, KnowsDevicesByTheirWholeName) {
  for (const auto& [name, bf16, fp32] : {std::tuple{"NVIDIA H100 80GB HBM3", 989, 67.0},
           {"NVIDIA H100 PCIe", 756, 51.0},
           {"NVIDIA H200", 989, 67.0},
           {"NVIDIA H200 NVL", 835, 60.0},
           {"NVIDIA A100-SXM4-80GB", 312, 19.5},
           {"NVIDIA A100 80GB PCIe", 312, 19.5}}) {
    const std::string unit = std::string("device 0, ") + name + ", 79.6 GiB";
    EXPECT_EQ(datasheet_peak(unit, model::Dtype::bf16), bf16 * 1e12) << name;
    EXPECT_EQ(datasheet_peak(unit, model::Dtype::fp32), fp32 * 1e12) << name;
  }
  for (const char* name : {"NVIDIA H20",
           "NVIDIA H100",
           "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
           "NVIDIA A1000",
           "Tesla T4",
           "",
           "host, 2 threads"})
    EXPECT_TRUE(std::isnan(datasheet_peak(name, model::Dtype::bf16))) << name;
}

/// In bf16: 312, 121 and 989 TFLOP/s. The case has the first ranks of the job.
TEST(Datasheet, APeakIsThatOfAllRanksOfACase) {
  const std::string a100 = "device 0, NVIDIA A100-SXM4-80GB", l4 = "device 0, NVIDIA L4",
                    host = "host, 2 threads";
  Case c = sample_case().settings;
  c.shape.dtype = model::Dtype::bf16;
  EXPECT_EQ(common_peak({l4, l4, l4, a100}, c), 121e12);
  for (const auto& units :
      {std::vector{a100, l4, l4}, {a100, a100, l4}, {a100, host, a100}, {host, host, host}})
    EXPECT_TRUE(std::isnan(common_peak(units, c))) << units[1];
}

TEST(Row, MemoryIsOfTheWorstRank) {
  const Row row = make_row(sample_case());
  for (const auto& [name, bytes] : {std::pair{"memory_planned", 6 * 3000 + 15},
           {"memory_measured", 6 * 6000 + 15 + 302},
           {"process_begin", 40002},
           {"process_peak", 50002},
           {"device_used", 70002}})
    EXPECT_EQ(row.integer(name), bytes) << name;
}

TEST(Row, BytesInsideAndBetweenGroups) {
  CaseResult r = sample_case();
  std::int64_t inside = 0, between = 0;
  for (std::int64_t i = 0; i < std::ssize(r.counted_bytes); ++i) {
    const auto from = i / 4 / 3, to = i / 4 % 3;
    ((from == 0) == (to == 0) ? inside : between) += i;
  }
  r.planned_bytes.assign(r.counted_bytes.size(), 1);
  const Row row = make_row(r);
  EXPECT_EQ(std::tuple(row.integer("bytes_inside"), row.integer("bytes_between")),
      std::tuple(inside, between));
  EXPECT_EQ(std::tuple(row.integer("planned_inside"), row.integer("planned_between")),
      std::tuple(5 * 4, 4 * 4));
  EXPECT_DOUBLE_EQ(row.real("rate_inside") * 2.25e9, static_cast<double>(inside));
  EXPECT_DOUBLE_EQ(row.real("rate_between") * 2.25e9, static_cast<double>(between));
  r.counted_bytes.pop_back();
  EXPECT_THROW((void)make_row(r), LogicError) << "of another size";
}

TEST(Row, TheAccountIsOfOneStepAndAMeanOverRanks) {
  CaseResult r =
      sample_case();  // 1.25 s; most idle is rank 0, the overlap is of all ranks together
  expect(make_row(r),
      {{"compute_s", 0.5},
          {"exposed_weights_s", 0.125},
          {"exposed_gradients_s", 0.0625},
          {"exposed_activations_s", 0.0625},
          {"exposed_embeddings_s", 0.1875},
          {"idle_s", 0.3125},
          {"exposed_share", 0.4375 / 1.25},
          {"idle_share", 0.25},
          {"idle_share_max", 0.3},
          {"overlap", 0.75 / 2.25},
          {"communication_s", 0.75}});
  for (trace::RankTime& rank : r.time)
    rank.communication = rank.hidden = 0;
  expect_none(make_row(r), {"overlap"});
}

TEST(Row, WithoutSamplesHasNoFigures) {
  const Row row = preview({sample_case().settings}).at(0);
  expect_none(row,
      {"median_s",
          "tokens_per_s",
          "mfu",
          "rate_inside",
          "exposed_share",
          "compute_s",
          "idle_share_max"});
  EXPECT_EQ(row.integer("memory_measured"), 0);
}

TEST(Verdict, OfACase) {
  CaseResult r = sample_case();
  EXPECT_EQ(verdict(r), "VALID (noisy: quartiles 67 % of the median apart)");
  r.settings.warmup = 0;
  EXPECT_EQ(verdict(r), "VALID (no warm-up; noisy: quartiles 67 % of the median apart)");
  for (std::vector<double>& step : r.seconds)
    step = {0.5, 0.25, 0.75};
  EXPECT_EQ(verdict(r), "VALID (no warm-up)");
  r.settings.warmup = 1;
  for (const double longer : {1.104, 1.106}) {  // quartiles 9.9 and 10.1 % of the median apart
    CaseResult near = r;
    for (std::size_t i = 0; i < 4; ++i)
      near.seconds[i] = {0.5, i < 2 ? 1 : longer, 0.75};
    EXPECT_EQ(verdict(near).starts_with("VALID (noisy"), longer > 1.105) << longer;
  }
  EXPECT_EQ(verdict(r), "VALID");
  r.settings.repeats = 2;
  EXPECT_EQ(verdict(r), "INVALID: 1 of 2 repetitions");
  EXPECT_THAT(verdict(sample_case("tawpipe", 128, 2)), HasSubstr("INVALID: 2 timed steps"));
  r.status = Status::wrong;
  r.reason = "loss is not a number";
  EXPECT_EQ(verdict(r), "INVALID: wrong: loss is not a number");
  r = sample_case();
  r.counted_bytes[3] += 1;
  EXPECT_THAT(verdict(r), HasSubstr("bytes"));
}

TEST(Verdict, OfASweep) {
  EXPECT_EQ(verdict(std::vector<Row>()), "INVALID: no case was run");
  std::vector<Row> rows = {make_row(sample_case("ddp"), 5), make_row(sample_case("tawpipe"), 6)};
  EXPECT_EQ(verdict(rows),
      "VALID (2 of 2 cases, first case 5 (ddp, 3 ranks in groups 1+2, 128 tokens): "
      "noisy: quartiles 67 % of the median apart)");
  EXPECT_THAT(verdict(rows, {1, "stopped by SIGTERM"}),
      HasSubstr("INVALID: unfinished cases: 1 (stopped by SIGTERM)"));
  rows.push_back(make_row(sample_case("tawpipe", 64, 1), 8));
  EXPECT_EQ(verdict(rows),
      "INVALID: 1 of 3 cases, first case 8 (tawpipe, 3 ranks in groups 1+2, 64 tokens, steps 1): "
      "1 timed step, at least 3 are needed");
}

/// Of the last rank, by hand: 6 x 6000 + 15 + 302 bytes are allocated, 6 x 3000 + 15 planned.
std::string memory_of_sample(int number) {
  return fmt::format("# most memory: case {}, 0.03463 MiB allocated through Kokkos, 0.01718 "
                     "planned; process 0.04769 "
                     "MiB at its peak, 0.03815 before the case; device 0.06676 MiB in use\n",
      number);
}

std::string judged_of(int executed, int checked) {
  return fmt::format(
      "# judged: bytes and memory beside their plan in {} case{}, loss and gradients of the first "
      "step "
      "beside a serial reference in {}; later steps: minitaw verify, speed: scripts/compare\n",
      executed,
      executed == 1 ? "" : "s",
      checked);
}

TEST(Verdict, ComesAfterWhatInstrumentsSay) {
  const auto sentences = [](const std::vector<Row>& rows) {
    return std::vector{fmt::format("{} looked at", rows.size()), std::string("done")};
  };
  EXPECT_THAT(
      closing_text({make_row(sample_case())},
          {{.columns = {}, .join = {}}, {.columns = {}, .join = {}, .sentences = sentences}}),
      testing::StartsWith("# 1 looked at\n# done\n# most memory"));
}

TEST(Verdict, SaysWhatItStandsOn) {
  const auto with = [](Status status, double error) {
    CaseResult r = sample_case("ddp");
    r.status = status;
    r.max_gradient_error = error;
    return make_row(r);
  };
  EXPECT_THAT(closing_text({with(Status::ok, 1e-7),
                  with(Status::wrong, 1),
                  with(Status::ok, NAN),
                  with(Status::skipped, NAN),
                  with(Status::oom, NAN),
                  with(Status::ok, 0)}),
      HasSubstr("\n" + judged_of(4, 3)));
  EXPECT_EQ(closing_text({with(Status::skipped, NAN)}).find("# judged"), std::string::npos);
}

TEST(Verdict, NamesTheCaseOfMostMemory) {
  CaseResult less = sample_case("ddp"), unknown = sample_case("ddp");
  for (RankMemory& memory : less.memory)
    memory.measured[1] -= 1000;
  for (RankMemory& memory : unknown.memory)
    memory.process_begin = memory.device_used = 0;
  EXPECT_THAT(closing_text({make_row(less, 3), make_row(sample_case("ddp"), 4)}),
      testing::StartsWith(memory_of_sample(4)));
  EXPECT_THAT(closing_text({make_row(unknown, 5)}),
      HasSubstr("case 5, 0.03463 MiB allocated through Kokkos, 0.01718 planned\n"));
  EXPECT_EQ(closing_text({}).find("memory"), std::string::npos);
}

TEST(Verdict, TheFigureOfMeritIsTheFastestValidCaseAndSaysWhatIsInDoubt) {
  CaseResult wrong = sample_case("ddp", 512), quiet = sample_case("ddp", 128);
  wrong.status = Status::wrong;
  for (std::vector<double>& step : quiet.seconds)
    step = {2, 2, 2};
  const Row noisy = make_row(sample_case("tawpipe", 256));
  const std::string fast =
      "figure of merit: 1365.33 tokens/s (tawpipe, 3 ranks in groups 1+2, 256 tokens), noisy: "
      "quartiles 67 % of the median apart; best without doubt: ";
  const std::string text = closing_text({make_row(quiet), noisy, make_row(wrong)});
  EXPECT_THAT(text, HasSubstr(fast + "768 tokens/s (ddp, 3 ranks in groups 1+2, 128 tokens)\n"));
  EXPECT_THAT(text, HasSubstr("\nRESULT: INVALID: 1 of 3 cases"));
  EXPECT_THAT(closing_text({noisy}), HasSubstr(fast + "none\nRESULT: VALID (1 of 1 case,"));
  EXPECT_EQ(closing_text({make_row(quiet)}),
      memory_of_sample(0) + judged_of(1, 1) +
          "figure of merit: 768 tokens/s (ddp, 3 ranks in groups 1+2, 128 tokens)\nRESULT: "
          "VALID\n");
  EXPECT_THAT(closing_text({make_row(wrong)}), HasSubstr("\nfigure of merit: none\n"));
  CaseResult by_nccl = sample_case("ddp");
  by_nccl.bytes_source = "by formula";
  const std::string formula =
      "# bytes of NCCL's collectives are by formula: NCCL does not tell which way they go\n";
  EXPECT_THAT(
      closing_text({noisy, make_row(by_nccl)}), HasSubstr("\n" + formula + "figure of merit:"));
  EXPECT_THAT(closing_text({noisy}), testing::Not(HasSubstr("by formula")));
}

/// Each change of the first is another model; schedules, ranks, lengths and precisions of one
/// compare.
TEST(Verdict, EachModelHasItsFigureOfMerit) {
  CaseResult first = sample_case();
  first.settings.shape.ffn.assign(5, 8);
  std::vector<Row> models = {make_row(first)}, others = models;
  const std::vector<std::function<void(model::Shape&)>> changes = {
      [](auto& s) { s.layers = 4, s.ffn.pop_back(); },
      [](auto& s) { s.hidden = 24; },
      [](auto& s) { s.heads = 6; },
      [](auto& s) { s.kv_heads = 3; },
      [](auto& s) { s.vocab = 29; },
      [](auto& s) { s.ffn[3] = 9; }};
  for (const auto& change : changes) {
    CaseResult other = first;
    change(other.settings.shape);
    models.push_back(make_row(other));
  }
  EXPECT_EQ(figures_of_merit(models).size(), 7U);
  CaseResult same = sample_case("ddp", 64);
  same.settings.shape.ffn = first.settings.shape.ffn;
  same.settings.shape.dtype = model::Dtype::bf16;
  same.settings.replicas = 1;
  others.push_back(make_row(same));
  EXPECT_EQ(figures_of_merit(others).size(), 1U);
}

std::vector<Row> rows() {
  CaseResult failed;
  failed.settings = sample_case("tawpipe:cco=off", 65536).settings;
  failed.status = Status::error;
  failed.reason = "out of memory, on \"rank\" 2";
  return {
      make_row(sample_case(), 0), make_row(sample_case("ddp", 4096, 7), 1), make_row(failed, 2)};
}

/// Columns where a field of the line ends: right-aligned fields must end where their names end.
std::vector<std::size_t> ends(const std::string& line) {
  std::vector<std::size_t> found;
  for (std::size_t i = 1; i < line.size(); ++i)
    if (line[i - 1] != ' ' && (line[i] == ' ' || line[i] == '\n'))
      found.push_back(i);
  return found;
}

TEST(Table, RowsAreAlignedWithTheNames) {
  const TextTable<Row> table = make_table(rows());
  std::string names = table.header();
  names.erase(names.find('\n') + 1);
  names[0] = ' ';
  const auto columns = ends(names);
  for (const Row& row : rows()) {
    const auto fields = ends(table.row(row));
    ASSERT_EQ(fields.size(), columns.size()) << table.row(row);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool left_aligned = i == 1 || i == 3 || i + 1 == fields.size();
      EXPECT_TRUE(left_aligned || fields[i] == columns[i])
          << names << table.row(row) << "field " << i;
    }
  }
  EXPECT_EQ(make_table(preview({sample_case().settings})).header(),
      make_table({make_row(sample_case())}).header());
}

/// By hand: 2.25 s, 1536 tokens; pair p of ranks 0 .. 8 has 16 p + 6 units, 0, 4, 5, 7 and 8 lie
/// inside groups.
TEST(Table, ARowHasTheFiguresOfItsColumns) {
  CaseResult r = sample_case();
  for (std::uint64_t& bytes : r.counted_bytes)
    bytes <<= 24;
  for (RankMemory& memory : r.memory)
    memory.measured[0] += 3 << 20;
  r.peak = 1e9;
  const Row row = make_row(r, 7);
  const double teraflops =
      1536 / 2.25 / 3 * (6.0 * (12 * (5 * 32 + 3 * 45) + 276) + 6.0 * 5 * 128 * 12) * 1e-12;
  const double inside = 16 * 24 + 5 * 6, between = 630 - inside;
  const auto rounded = [](double value, int decimals) {
    return fmt::format("{:.{}f}", value, decimals);
  };
  std::istringstream line(make_table({row}).row(row));
  std::vector<std::string> found;
  for (std::string field; line >> field;)
    found.push_back(field);
  EXPECT_THAT(found,
      testing::ElementsAre("7",
          "tawpipe",
          "3x1",
          "1+2",
          "128",
          "2",
          "6",
          "2.250",
          "1.500",
          "3.000",
          "682.7",
          "227.6",
          rounded(teraflops, 7),
          rounded(100 * teraflops / 1e-3, 1),
          rounded(3 + (6 * 6000 + 15 + 302) / 1048576.0, 3),
          rounded(16 * inside, 0),
          rounded(16 * between, 0),
          rounded(inside * (1 << 24) / 2.25e9, 3),
          rounded(between * (1 << 24) / 2.25e9, 3),
          "counted",
          "35.0",
          "25.0",
          "33.3",
          "3.0000",
          "2.5000",
          "1e-07",
          "ok"));
}

/// Of these rows schedule, seq and hidden differ.
TEST(Table, ANarrowLineKeepsWhatTellsCasesApartAndTheMainFigures) {
  CaseResult long_name = sample_case();
  long_name.settings.schedule = "fsdp:fetch=step:hierarchical=on:reduce=group";
  const std::vector<Row> some = {make_row(sample_case("ddp", 64)), make_row(long_name)};
  for (const int width : {200, 160, 120, 100, 80}) {
    const TextTable<Row> table = make_table(some, {.width = width});
    std::istringstream lines(table.header() + table.row(some[0]) + table.row(some[1]));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(std::ssize(line), width) << line;
    for (const char* name : {"schedule", "step", "rate", "memory", "status"})
      EXPECT_THAT(table.header(), HasSubstr(name)) << width;
    EXPECT_THAT(table.header(), testing::Not(HasSubstr("groups")));  // equal in all rows
    EXPECT_THAT(table.row(some[1]), HasSubstr("fsdp:fetch=step:hierarchical=~"));
  }
  EXPECT_THAT(make_table(some, {.width = 120}).header(),
      testing::AllOf(HasSubstr("between"), HasSubstr("exposed")));
  EXPECT_THAT(make_table(some, {.width = 160}).header(), HasSubstr("seq"));
}

TEST(Table, ShowsTheColumnsThatAreAskedFor) {
  const std::vector<Row> some = {make_row(sample_case())};
  const TextTable<Row> table =
      make_table(some, {.columns = {"step", "cv", "energy_per_token", "inside"}});
  std::istringstream words(table.header().substr(1, table.header().find('\n')));
  std::vector<std::string> found;
  for (std::string word; words >> word;)
    found.push_back(word);
  EXPECT_THAT(found,
      testing::ElementsAre(
          "case", "schedule", "step", "cv", "energy_per_token", "inside", "inside"));
  const std::string refusal =
      test::refusal_of([&] { (void)make_table(some, {.columns = {"memry"}}); });
  EXPECT_THAT(refusal, HasSubstr("no column \"memry\"; did you mean \"memory\"?"));
}

TEST(Table, ShowsCopiesAndMicroBatchesOfUnequalSize) {
  CaseResult copies = sample_case(), plain = sample_case();
  copies.settings.ranks = 6;
  copies.settings.replicas = 2;
  copies.settings.micro_batch_per_rank = {2, 13, 7, 2, 2, 2};
  copies.settings.shape.micro_batch = 13;
  plain.settings.replicas = 1;
  const std::vector<Row> both = {make_row(plain), make_row(copies)};
  EXPECT_THAT(make_table(both).row(both[0]),
      testing::AllOf(HasSubstr("    3 1+2 "), HasSubstr("128     2    6 ")));
  EXPECT_THAT(make_table(both).row(both[1]),
      testing::AllOf(HasSubstr("  2x3 1+2 "), HasSubstr("128 2..13    6 ")));
}

TEST(Table, LinesThatAreNoDataBeginWithAHashAndSettingsListEveryValueOnce) {
  const std::string text = settings_text(rows());
  std::istringstream lines(make_table(rows()).header() + text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_THAT(line, testing::StartsWith("#"));
  for (const char* line : {"seq           = 128, 4096, 65536 token",
           "layers        = 5",
           "ffn           = 7,8,9,10,11"})
    EXPECT_THAT(text, HasSubstr(std::string("# ") + line + "\n"));
}

TEST(Result, KeepsItsFirstFailureAndTheMedianIsInTheMiddle) {
  CaseResult r;
  for (const char* reason : {"first", "second"})
    fail(r, reason);
  EXPECT_TRUE(r.status == Status::wrong && r.reason == "first") << r.reason;
  EXPECT_EQ(std::tuple(median({5, 1, 2}), median({1, 4})), std::tuple(2, 2.5));
}

TEST(Json, IsAListOfObjects) {
  const auto list = nlohmann::json::parse(to_json(rows()));
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].size(), empty_row().columns.size());
  EXPECT_TRUE(list[1]["schedule"] == "ddp" && list[1]["seq"] == 4096) << list[1];
  EXPECT_DOUBLE_EQ(list[0]["median_s"].get<double>(), 2.25);
  EXPECT_TRUE(list[2]["median_s"].is_null() && list[0]["mfu"].is_null());
  EXPECT_EQ(nlohmann::json::parse(to_json({})).size(), 0U);
}
}  // namespace
}  // namespace minitaw::record

#include <gmock/gmock.h>

#include <cmath>
#include <tuple>

#include "base/error.hpp"
#include "record/result.hpp"
#include "record/table.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::HasSubstr;

TEST(Summary, a_sample_is_the_slowest_rank_and_quartiles_are_interpolated) {
  const Summary s = summarise(sample_case("tawpipe", 128, 4));  // 0.75, 1.75, 2.75, 3.75 s
  EXPECT_DOUBLE_EQ(s.median_s, 2.25);
  EXPECT_DOUBLE_EQ(s.q1_s, 1.5);
  EXPECT_DOUBLE_EQ(s.q3_s, 3.0);
  EXPECT_DOUBLE_EQ(s.min_s, 0.75);
  EXPECT_DOUBLE_EQ(s.max_s, 3.75);
}

TEST(Summary, the_order_of_the_steps_does_not_matter) {
  CaseResult r = sample_case("tawpipe", 128, 5);
  std::swap(r.seconds[0], r.seconds[4]);
  EXPECT_DOUBLE_EQ(summarise(r).median_s, 2.75);
}

TEST(Summary, rates) {
  const CaseResult r = sample_case("tawpipe", 128, 3);  // median 1.75 s
  const Summary s = summarise(r);
  EXPECT_DOUBLE_EQ(tokens_of(r.settings), 6 * 2 * 128);
  EXPECT_DOUBLE_EQ(s.tokens_per_s, 1536 / 1.75);
  EXPECT_DOUBLE_EQ(s.tokens_per_s_rank, 512 / 1.75);
  // Matrices of a block: 12 (20 + 12 + 3 F), F = 7 .. 11; head 23 x 12. Attention 6 L S A.
  const double matmul = 6.0 * (12 * (5 * 32 + 3 * 45) + 276);
  const double causal = 6.0 * 5 * 128 * 12;
  EXPECT_NEAR(s.tflops_causal, s.tokens_per_s * (matmul + causal) * 1e-12, 1e-18);
  EXPECT_NEAR(s.tflops_full, s.tokens_per_s * (matmul + 2 * causal) * 1e-12, 1e-18);
}

TEST(Summary, utilisation_is_of_the_peak_that_is_known) {
  CaseResult r = sample_case("tawpipe", 128, 3);  // median 1.75 s
  EXPECT_TRUE(std::isnan(make_row(r).real("mfu")));
  r.peak = 1e9;
  const Row row = make_row(r);
  EXPECT_DOUBLE_EQ(row.real("peak"), 1e-3);
  EXPECT_DOUBLE_EQ(row.real("tflops_rank"), summarise(r).tflops_causal / 3);
  EXPECT_DOUBLE_EQ(row.real("mfu"), summarise(r).tflops_causal * 1e12 / 3 / 1e9);
  EXPECT_DOUBLE_EQ(row.real("rate_inside") * 1.75e9, static_cast<double>(row.integer("bytes_inside")));
  EXPECT_DOUBLE_EQ(row.real("rate_between") * 1.75e9, static_cast<double>(row.integer("bytes_between")));
}

TEST(Datasheet, knows_devices_by_their_whole_name) {
  using model::Dtype;
  for (const auto& [name, bf16, fp32] : {std::tuple{"NVIDIA H100 80GB HBM3", 989, 67.0},
                                         {"NVIDIA H100 PCIe", 756, 51.0},
                                         {"NVIDIA H200", 989, 67.0},
                                         {"NVIDIA H200 NVL", 835, 60.0},
                                         {"NVIDIA A100-SXM4-80GB", 312, 19.5},
                                         {"NVIDIA A100 80GB PCIe", 312, 19.5}}) {
    const std::string unit = std::string("device 0, ") + name + ", 79.6 GiB";
    EXPECT_EQ(datasheet_peak(unit, Dtype::bf16), bf16 * 1e12) << name;
    EXPECT_EQ(datasheet_peak(unit, Dtype::fp32), fp32 * 1e12) << name;
  }
  for (const char* name : {"NVIDIA H20", "NVIDIA H100", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A1000",
                           "Tesla T4", "", "host, 2 threads"})
    EXPECT_TRUE(std::isnan(datasheet_peak(name, Dtype::bf16))) << name;
}

TEST(Summary, memory_is_of_the_worst_rank) {
  const Summary s = summarise(sample_case());
  EXPECT_EQ(s.memory_planned, 5 * 3000 + 10U);
  EXPECT_EQ(s.memory_measured, 5 * 6000 + 10U);
  EXPECT_EQ(s.process_peak, 50002U);
}

TEST(Summary, bytes_inside_and_between_groups) {
  CaseResult r = sample_case();
  std::uint64_t inside = 0, between = 0;
  for (std::uint64_t i = 0; i < r.counted_bytes.size(); ++i) {
    const auto from = i / 4 / 3, to = i / 4 % 3;
    ((from == 0) == (to == 0) ? inside : between) += i;
  }
  r.planned_bytes.assign(r.counted_bytes.size(), 1);
  const Summary s = summarise(r);
  EXPECT_EQ(s.bytes_inside, inside);
  EXPECT_EQ(s.bytes_between, between);
  EXPECT_EQ(s.planned_inside, 5 * 4U);
  EXPECT_EQ(s.planned_between, 4 * 4U);
}

TEST(Summary, a_byte_matrix_of_another_size_is_a_defect) {
  CaseResult r = sample_case();
  r.counted_bytes.pop_back();
  EXPECT_THROW((void)summarise(r), LogicError);
}

TEST(Summary, the_account_is_of_one_step_and_a_mean_over_ranks) {
  const Summary s = summarise(sample_case());  // 1.25 s
  EXPECT_DOUBLE_EQ(s.compute_s, 0.5);
  EXPECT_THAT(s.exposed_s, testing::ElementsAre(0.125, 0.0625, 0.0625, 0.1875));
  EXPECT_DOUBLE_EQ(s.idle_s, 0.3125);
  EXPECT_DOUBLE_EQ(s.exposed_share, 0.4375 / 1.25);
  EXPECT_DOUBLE_EQ(s.bubble, 0.25);
  EXPECT_DOUBLE_EQ(s.bubble_max, 0.3) << "of rank 0";
  EXPECT_DOUBLE_EQ(s.overlap, 0.75 / 2.25) << "of all ranks together";
}

TEST(Summary, without_communication_there_is_no_overlap) {
  CaseResult r = sample_case();
  for (trace::RankTime& rank : r.time) rank.communication = rank.hidden = 0;
  EXPECT_TRUE(std::isnan(summarise(r).overlap));
  EXPECT_TRUE(std::isnan(r.time[0].overlap()));
}

TEST(Summary, spread_and_variation_are_of_the_samples) {
  const Summary s = summarise(sample_case());  // 0.75, 1.75, 2.75, 3.75
  EXPECT_EQ(s.samples, 4);
  EXPECT_DOUBLE_EQ(s.spread, 1.5 / 2.25);
  EXPECT_DOUBLE_EQ(s.cv, std::sqrt(5.0 / 3) / 2.25);
  EXPECT_TRUE(std::isnan(summarise(sample_case("ddp", 1, 1)).cv));
}

TEST(Summary, counters_are_means_and_extremes_over_samples_and_ranks) {
  CaseResult r = sample_case();
  const Summary s = summarise(r);
  EXPECT_DOUBLE_EQ(s.energy_per_token, 600.0 / (4 * 6 * 128 * 2));
  EXPECT_DOUBLE_EQ(s.power_mean, 3 * 600 + 7 + 14 + 3 * 1.5) << "summed over ranks";
  EXPECT_DOUBLE_EQ(s.clock_min, 1700);
  EXPECT_DOUBLE_EQ(s.temperature_max, 54);
  EXPECT_DOUBLE_EQ(s.throttled, 0.25) << "heat in one of four; idling is no throttling";
  r.device_samples.clear();
  r.energy.clear();
  for (const double figure : {summarise(r).energy_per_token, summarise(r).power_mean, summarise(r).clock_min,
                              summarise(r).temperature_max, summarise(r).throttled})
    EXPECT_TRUE(std::isnan(figure));
}

/// By hand: two repetitions of two steps on two ranks, 10 sequences of 50 tokens a step.
TEST(Summary, energy_is_of_all_repetitions_and_tokens) {
  CaseResult r = sample_case();
  r.settings.shape.seq = 50;
  r.settings.shape.micro_batch = 1;
  r.settings.micro_batches = 10;
  r.seconds = {{1, 2}, {2, 1}, {3, 2}, {1, 1}};
  r.energy = {{400, 300}, {100, 200.5}};
  const auto at = [](double clock, double temperature, double power, std::uint64_t throttle) {
    return DeviceSample{clock, 2600, temperature, power, throttle};
  };
  r.device_samples = {{at(1980, 60, 500, 0x0), at(1500, 61, 300, 0x4)},
                      {at(1700, 65, 600, 0x1), at(1800, 71, 100, 0x2)},
                      {at(1975, 70, 550, 0x80), at(1900, 62, 350, 0x8)},
                      {at(1980, 69, 450, 0x200), at(1980, 64, 250, 0x10)}};
  const Summary s = summarise(r);
  EXPECT_DOUBLE_EQ(s.energy_per_token, 1000.5 / 2000);
  EXPECT_DOUBLE_EQ(s.power_mean, (800 + 700 + 900 + 700) / 4.0);
  EXPECT_EQ(s.clock_min, 1500);
  EXPECT_EQ(s.temperature_max, 71);
  EXPECT_DOUBLE_EQ(s.throttled, 0.5) << "the first and the third: power cap, power brake, slow-down";
}

TEST(Summary, what_one_device_does_not_tell_is_not_made_up) {
  CaseResult r = sample_case();
  r.device_samples[2][1].throttle = throttle_unknown;
  r.device_samples[1][0].power_w = r.device_samples[1][0].clock_mhz = std::nan("");
  r.energy[0][2] = std::nan("");
  const Summary s = summarise(r);
  EXPECT_TRUE(std::isnan(s.throttled) && std::isnan(s.power_mean) && std::isnan(s.energy_per_token));
  EXPECT_EQ(s.clock_min, 1700) << "of those that tell";
}

TEST(Summary, a_case_without_samples_has_no_figures) {
  CaseResult r;
  r.settings = sample_case().settings;
  const Summary s = summarise(r);
  EXPECT_TRUE(std::isnan(s.median_s));
  EXPECT_TRUE(std::isnan(s.tokens_per_s));
  EXPECT_TRUE(std::isnan(s.exposed_share));
  EXPECT_TRUE(std::isnan(s.compute_s));
  EXPECT_TRUE(std::isnan(s.bubble_max));
  EXPECT_EQ(s.memory_measured, 0U);
}

TEST(Verdict, of_a_case) {
  CaseResult r = sample_case();
  EXPECT_EQ(verdict(r).text(), "VALID (noisy: quartiles 67 % of the median apart)");
  for (std::vector<double>& step : r.seconds) step = {0.5, 0.25, 0.75};
  EXPECT_EQ(verdict(r).text(), "VALID");
  r.settings.warmup = 0;
  EXPECT_EQ(verdict(r).text(), "VALID (no warm-up)");
  CaseResult both = sample_case();
  both.settings.warmup = 0;
  EXPECT_EQ(verdict(both).text(), "VALID (no warm-up; noisy: quartiles 67 % of the median apart)");
  r.settings.repeats = 2;
  EXPECT_EQ(verdict(r).text(), "INVALID: 1 of 2 repetitions");
  EXPECT_THAT(verdict(sample_case("tawpipe", 128, 2)).text(), HasSubstr("INVALID: 2 timed steps"));
  r = sample_case();
  r.status = Status::wrong;
  r.reason = "loss is not a number";
  EXPECT_EQ(verdict(r).text(), "INVALID: wrong: loss is not a number");
  r = sample_case();
  r.counted_bytes[3] += 1;
  EXPECT_THAT(verdict(r).text(), HasSubstr("bytes"));
}

TEST(Verdict, of_a_sweep) {
  EXPECT_FALSE(verdict(std::vector<Row>{}).valid());
  std::vector<Row> rows = {make_row(sample_case("ddp"), 0), make_row(sample_case("tawpipe"), 1)};
  EXPECT_TRUE(verdict(rows).valid());
  EXPECT_EQ(verdict(rows).text(),
            "VALID (2 of 2 cases, first case 0 (ddp, 3 ranks in groups 1+2, 128 tokens): "
            "noisy: quartiles 67 % of the median apart)");
  CaseResult slow = sample_case("tawpipe", 64, 1);
  rows.push_back(make_row(slow, 2));
  EXPECT_EQ(
      verdict(rows).text(),
      "INVALID: 1 of 3 cases, first case 2 (tawpipe, 3 ranks in groups 1+2, 64 tokens): 1 timed steps, at "
      "least 3 are needed");
}

TEST(Verdict, the_figure_of_merit_is_the_fastest_valid_case) {
  CaseResult fast = sample_case("tawpipe", 256);
  CaseResult wrong = sample_case("ddp", 512);
  wrong.status = Status::wrong;
  const std::string text = closing_text({make_row(sample_case("ddp", 128)), make_row(fast), make_row(wrong)});
  EXPECT_THAT(text,
              HasSubstr("figure of merit: 1365.33 tokens/s (tawpipe, 3 ranks in groups 1+2, 256 tokens)\n"));
  EXPECT_THAT(text, HasSubstr("\nRESULT: INVALID: 1 of 3 cases"));
  EXPECT_THAT(closing_text({make_row(fast)}), HasSubstr("\nRESULT: VALID (1 of 1 cases"));
  EXPECT_THAT(closing_text({make_row(wrong)}), testing::StartsWith("figure of merit: none\n"));
}

}  // namespace
}  // namespace minitaw::record

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "record/samples.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

/// A case of two repetitions of two and three steps on three ranks, the second run first in its session.
StoredCase stored(bool with_device) {
  const CaseResult result = sample_case("tawpipe", 128, 5);
  StoredCase s{make_row(result, 7), result.seconds, {0, 0, 1, 1, 1}, {4, 2}, {}, {}, {}, {}};
  if (!with_device) return s;
  s.device_samples = result.device_samples;
  s.energy = {{1, 2, 3}, {4, 5, 6}};
  return s;
}

TEST(Samples, have_a_row_for_each_case_repetition_step_and_rank) {
  const auto list = nlohmann::json::parse(samples_to_json({stored(true), stored(false)}));
  ASSERT_EQ(list.size(), 2U * 5 * 3);
  const auto& one = list[3 * 3 + 2];  // fourth sample, rank 2
  EXPECT_EQ(one["case"], 7);
  EXPECT_EQ(one["schedule"], "tawpipe");
  EXPECT_EQ(one["seq [token]"], 128);
  EXPECT_EQ(one["repetition"], 1);
  EXPECT_EQ(one["position"], 2);
  EXPECT_EQ(one["step"], 1);
  EXPECT_EQ(one["rank"], 2);
  EXPECT_DOUBLE_EQ(one["seconds [s]"].get<double>(), 3.75);
  EXPECT_DOUBLE_EQ(one["clock [MHz]"].get<double>(), 1732);
  EXPECT_DOUBLE_EQ(one["energy [J]"].get<double>(), 6);
  EXPECT_EQ(list[3 + 2]["throttle"], 0x21);
  EXPECT_FALSE(one.contains("identity"));
}

TEST(Samples, leave_out_what_no_device_told) {
  const auto list = nlohmann::json::parse(samples_to_json({stored(false)}));
  for (const char* name : {"clock [MHz]", "temperature [degC]", "power [W]", "throttle", "energy [J]"})
    EXPECT_TRUE(list[0][name].is_null()) << name;
}

TEST(Samples, agree_in_csv_and_json) {
  const std::vector<StoredCase> cases = {stored(true), stored(false)};
  const auto list = nlohmann::ordered_json::parse(samples_to_json(cases));
  std::istringstream lines(samples_to_csv(cases));
  std::string header, line, names;
  std::getline(lines, header);
  for (const auto& [name, value] : list[0].items()) names += (names.empty() ? "" : ",") + name;
  EXPECT_EQ(header, names);
  std::size_t count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_EQ(line.find("nan"), std::string::npos);
  EXPECT_EQ(count, list.size());
}

TEST(Samples, of_no_case_are_a_header_and_an_empty_list) {
  EXPECT_EQ(nlohmann::json::parse(samples_to_json({})).size(), 0U);
  EXPECT_EQ(samples_to_csv({}).find("case,schedule,ranks,"), 0U);
}

}  // namespace
}  // namespace minitaw::record

// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <gmock/gmock.h>
#include "fixtures.hpp"
#include "instruments/blame/blame.hpp"
#include "record/recorder.hpp"
#include "record/sample.hpp"

namespace minitaw::blame {
namespace {
using record::Row;

Row row_of(const Finding& found, int number = 0) {
  CaseResult r = record::sample_case("ddp");
  r.found.clear();
  add(found, r);
  Row row = record::make_row(r, number);
  row.set(extension().columns(r));
  return row;
}

/// A case of these has this culprit; its text is said in the words of the case that it costs most.
Row blamed(int number, const std::string& culprit, double share = 0.1) {
  const std::string text =
      culprit.empty() ? "no rank stands out" : fmt::format("{} costs {}", culprit, share);
  return row_of({text, culprit, culprit.empty() ? Finding::unknown : 0.09, share, {}}, number);
}

/// Half of the cases that were judged, and two of several: disturbances are of one case.
TEST(StandingOut, NamesWhoStandsOutInHalfOfTheCases) {
  const Row unjudged = row_of({}, 9);
  const auto none = [](int number) { return blamed(number, ""); };
  using testing::ElementsAre;
  EXPECT_THAT(standing_out({blamed(4, "node 1")}),
      ElementsAre("node 1 costs 0.1 (case 4); it stands out in 1 of 1 case"));
  EXPECT_THAT(standing_out(
                  {blamed(0, "rank 2", 0.1), unjudged, blamed(2, "rank 2", 0.3), none(3), none(4)}),
      ElementsAre("rank 2 costs 0.3 (case 2); it stands out in 2 of 4 cases"));
  EXPECT_THAT(standing_out({blamed(0, "rank 2"), blamed(1, "rank 2"), none(2), none(3), none(4)}),
      ElementsAre(
          "no rank or link stands out in half of 5 cases; one does in 2, see column culprit"));
  EXPECT_THAT(standing_out({blamed(0, "rank 2"), unjudged, blamed(1, "rank 3")}),
      ElementsAre(
          "no rank or link stands out in half of 2 cases; one does in 2, see column culprit"));
  EXPECT_THAT(standing_out({blamed(0, "rank 1", NAN),
                  blamed(1, "node 0"),
                  blamed(2, "rank 1"),
                  blamed(3, "node 0", 0)}),
      ElementsAre("node 0 costs 0.1 (case 1); it stands out in 2 of 4 cases",
          "rank 1 costs 0.1 (case 2); it stands out in 2 of 4 cases"));
}

TEST(StandingOut, SaysWhyNoPartIsNamed) {
  const std::string text = "no rank or link is judged: 4 threads of ranks 0-3 share 2 cores";
  const Row crowd = row_of({text, "", NAN, NAN, {}});
  EXPECT_THAT(standing_out({crowd, blamed(1, ""), crowd}),
      testing::ElementsAre(text, "no rank stands out"));
  EXPECT_THAT(standing_out({row_of({})}), testing::IsEmpty());
  const Row with_links = row_of({"no rank or link stands out", "", NAN, NAN, {}});
  EXPECT_THAT(standing_out({blamed(0, ""), with_links, blamed(2, ""), with_links, with_links}),
      testing::ElementsAre("no rank or link stands out; links are judged in 3 of 5 cases"));
  const Row row = blamed(0, "rank 1", 0.06);
  EXPECT_EQ(
      std::tuple(row.real("culprit_slower"), row.real("culprit_share")), std::tuple(0.09, 0.06));
}

class File : public test::InFolder {};

/// A disturbance is of one repetition, a slow rank of all.
TEST_F(File, OfRepetitionsNamesWhoStandsOutInEachOfThem) {
  const std::string file = path("r.h5");
  const auto named = [&](const std::vector<std::string>& culprits) {
    std::filesystem::remove(file);
    record::Recorder recorder(file, record::sample_session(), {extension()});
    for (int number = 0; const std::string& culprit : culprits) {
      CaseResult r = record::sample_case();
      r.settings.repeats = static_cast<int>(culprits.size());
      r.found.clear();
      Finding found;
      found.culprit = culprit;
      found.text = culprit.empty() ? "no rank stands out" : culprit + " is slow";
      if (!culprit.empty())
        found.slower = found.share = 0.1;
      add(found, r);
      recorder.append(r, number++);
    }
    const Row row = record::read_contents(file).rows.at(0);
    EXPECT_EQ(std::isnan(row.real("culprit_slower")), row.text("culprit").empty());
    EXPECT_EQ(std::isnan(row.real("culprit_share")), row.text("culprit").empty());
    return row.text("culprit") + ": " + row.text("blame");
  };
  EXPECT_EQ(named({"rank 1", "rank 1", "rank 1"}), "rank 1: rank 1 is slow");
  for (const auto& changing :
      {std::vector<std::string>{"rank 1", "rank 2"}, {"", "rank 1"}, {"rank 1", "", "rank 1"}})
    EXPECT_EQ(named(changing), ": no rank or link stands out in every repetition");
  EXPECT_EQ(named({"rank 1", ""}), ": no rank stands out");
}
}  // namespace
}  // namespace minitaw::blame

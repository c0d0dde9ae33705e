#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "trace/phase.hpp"
#include "trace/sample.hpp"
#include "trace/svg_canvas.hpp"
#include "trace/write.hpp"

namespace minitaw::trace {
namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

/// Elements open and close in order, attributes and text hold nothing that XML forbids.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < svg.size();) {
    if (svg[at] != '<') {
      EXPECT_NE(svg[at], '>') << svg.substr(at, 60);
      EXPECT_TRUE(svg[at] != '&' || svg.find(';', at) < at + 7) << svg.substr(at, 60);
      ++at;
      continue;
    }
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    EXPECT_EQ(count(tag, "<"), 0U) << tag;
    EXPECT_EQ(count(tag, "\"") % 2, 0U) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
}

TEST(Svg, IsWellFormedForEverySchedule) {
  for (const schedule::Entry& entry : schedule::registry()) {
    SCOPED_TRACE(entry.name);
    const topology::Groups groups(entry.one_rank ? std::vector<int>{1} : std::vector<int>{2, 1, 2});
    const Timeline timeline = planned(entry.name.c_str(), groups, 2, entry.name);
    const std::string svg = to_svg(std::vector{timeline});
    expect_well_formed(svg);
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    for (int r = 0; r < groups.ranks(); ++r)
      EXPECT_EQ(count(svg, ">rank " + std::to_string(r) + "</text>"), 1U);
    EXPECT_EQ(count(svg, "nan"), 0U);
    EXPECT_EQ(count(svg, "inf"), 0U);
  }
}

TEST(Svg, EscapesTitles) {
  const Timeline timeline = planned("tawpipe", topology::Groups({2, 2}), 1, "a < b & \"c\"\n1 > 0\x01");
  const std::string svg = to_svg(std::vector{timeline});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "a &lt; b &amp; &quot;c&quot; (planned)"), 1U);
  EXPECT_EQ(count(svg, "1 &gt; 0?"), 1U);
}

TEST(Svg, StacksTimelinesOverOneAxis) {
  Timeline planned_step = planned("tawpipe", topology::Groups({2, 2}), 1, "one");
  Timeline measured_step = planned_step;
  measured_step.measured = true;
  const std::string one = to_svg(std::vector{planned_step});
  const std::string both = to_svg(std::vector{planned_step, measured_step});
  EXPECT_EQ(count(both, "one (planned)"), 1U);
  EXPECT_EQ(count(both, "one (measured)"), 1U);
  EXPECT_EQ(count(both, "<title>"), 2 * count(one, "<title>"));
  // Another panel twice as long squeezes the first to half its width.
  for (Event& e : measured_step.events) e.end *= 2, e.begin *= 2;
  EXPECT_EQ(count(to_svg(std::vector{planned_step, measured_step}), "since the step began"), 2U);
}

/// Arrows: all messages of few ranks, of many only those between groups, and none where there are too many.
TEST(Svg, DrawsAsManyArrowsAsOneCanFollow) {
  const auto arrows = [](const Timeline& t) { return count(to_svg(std::vector{t}), "<path class=\"arrow"); };
  const auto sends = [](const Timeline& t, bool between_only) {
    return std::ranges::count_if(t.events, [&](const Event& e) {
      return e.kind == schedule::Kind::send && !(between_only && t.groups.together(e.rank, e.peer));
    });
  };
  const Timeline few = planned("tawpipe:gwps=off", topology::Groups({2, 2}), 1, "");
  EXPECT_EQ(arrows(few), sends(few, false));
  EXPECT_GT(sends(few, false), sends(few, true));
  const Timeline many = planned("weipipe", topology::Groups({6, 6}), 1, "");
  EXPECT_EQ(arrows(many), sends(many, true));
  EXPECT_GT(arrows(many), 0);
  EXPECT_EQ(arrows(planned("tawpipe:gwps=off", topology::Groups({3, 6}), 3, "")), 0);
}

TEST(Svg, DrawsEmptyTimelines) {
  const Timeline empty{"nothing", true, topology::Groups({1, 2}), {}};
  expect_well_formed(to_svg(std::vector{empty}));
  expect_well_formed(to_svg({}));
}

TEST(Svg, NumbersAreShort) {
  EXPECT_EQ(number(12), "12");
  EXPECT_EQ(number(12.34), "12.3");
  EXPECT_EQ(number(-0.01), "0");
  EXPECT_EQ(number(99.96), "100");
}

TEST(Phases, EveryOneHasANameAndAColourOfItsOwn) {
  std::set<std::string_view> names, colours;
  for (int p = 0; p < phases; ++p) {
    EXPECT_TRUE(names.insert(name_of(static_cast<Phase>(p))).second);
    EXPECT_TRUE(colours.insert(colour_of(static_cast<Phase>(p))).second);
  }
}

}  // namespace
}  // namespace minitaw::trace

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trace/phase.hpp"
#include "trace/sample.hpp"
#include "trace/write.hpp"

namespace minitaw::trace {
namespace {

using nlohmann::json;

std::vector<json> with_phase(const json& trace, const char* phase) {
  std::vector<json> found;
  for (const json& e : trace.at("traceEvents"))
    if (e.at("ph") == phase) found.push_back(e);
  return found;
}

class ChromeTrace : public testing::TestWithParam<const char*> {
protected:
  ChromeTrace()
      : timelines{planned(GetParam(), topology::Groups({2, 3}), 2, "first \"one\"\nwith a note"),
                  planned("tawpipe", topology::Groups({1, 1, 1}), 1, "second")},
        trace(json::parse(to_chrome_trace(timelines))) {}

  std::vector<Timeline> timelines;
  json trace;
};

TEST_P(ChromeTrace, HasASliceForEveryActionButJoin) {
  std::size_t expected = 0;
  for (const Timeline& t : timelines)
    for (const Event& e : t.events) expected += phase_of(e) == Phase::join ? 0 : 1;
  const auto slices = with_phase(trace, "X");
  ASSERT_EQ(slices.size(), expected);
  const Event& e = timelines[0].events[0];
  EXPECT_EQ(slices[0].at("name"), text_of(e));
  EXPECT_DOUBLE_EQ(slices[0].at("ts"), e.begin * 1e6);
  EXPECT_DOUBLE_EQ(slices[0].at("dur"), (e.end - e.begin) * 1e6);
}

TEST_P(ChromeTrace, SlicesOfAThreadDoNotOverlap) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  for (const json& e : with_phase(trace, "X"))
    threads[{e.at("pid"), e.at("tid")}].emplace_back(e.at("ts"), e.at("dur"));
  for (auto& [thread, slices] : threads) {
    std::ranges::sort(slices);
    for (std::size_t i = 1; i < slices.size(); ++i)
      EXPECT_LE(slices[i - 1].first + slices[i - 1].second, slices[i].first + 1e-6);
  }
}

TEST_P(ChromeTrace, NamesEveryProcessAndThread) {
  std::set<std::string> processes;
  std::set<std::pair<int, int>> named, used;
  for (const json& e : with_phase(trace, "M")) {
    if (e.at("name") == "process_name") processes.insert(e.at("args").at("name"));
    if (e.at("name") == "thread_name") named.emplace(e.at("pid").get<int>(), e.at("tid").get<int>());
  }
  for (const json& e : with_phase(trace, "X")) used.emplace(e.at("pid").get<int>(), e.at("tid").get<int>());
  EXPECT_EQ(processes.size(), 8U);  // 5 ranks and 3
  EXPECT_TRUE(processes.contains("first \"one\" (planned): rank 4, group 1"));
  EXPECT_EQ(named, used);
  EXPECT_EQ(trace.at("otherData").at("first \"one\" (planned)"), "with a note");
}

TEST_P(ChromeTrace, EveryMessageIsAFlowFromASliceToASlice) {
  std::size_t messages = 0;
  for (const Timeline& t : timelines)
    messages += std::ranges::count(t.events, schedule::Kind::send, &Event::kind);
  std::map<int, json> starts;
  for (const json& e : with_phase(trace, "s")) EXPECT_TRUE(starts.emplace(e.at("id"), e).second);
  EXPECT_EQ(starts.size(), messages);
  const auto ends = with_phase(trace, "f");
  EXPECT_EQ(ends.size(), messages);
  for (const json& end : ends) {
    const json& start = starts.at(end.at("id"));
    EXPECT_LE(start.at("ts").get<double>(), end.at("ts").get<double>());
    EXPECT_NE(start.at("pid"), end.at("pid"));
    EXPECT_EQ(end.at("bp"), "e");
    for (const char* same : {"name", "cat"}) EXPECT_EQ(start.at(same), end.at(same));
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, ChromeTrace,
                         testing::Values("tawpipe", "tawpipe:gwps=off", "fsdp", "zb1", "weipipe"));

}  // namespace
}  // namespace minitaw::trace

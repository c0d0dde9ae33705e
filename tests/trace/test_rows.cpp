#include "seed.hpp"
#include "trace/rows.hpp"

#include <gtest/gtest.h>

#include <random>

#include "trace/sample.hpp"

namespace minitaw::trace {
namespace {

using schedule::Kind;
using schedule::Lane;

Event event(int rank, Lane lane, double begin, double end, Kind kind = Kind::send) {
  Event e;
  e.rank = rank;
  e.lane = lane;
  e.kind = kind;
  e.begin = begin;
  e.end = end;
  return e;
}

TEST(Rows, WhatOverlapsStandsSideBySide) {
  Timeline t{"", false, topology::Groups({2}), {}};
  t.events = {event(0, Lane::operands_in, 0, 2), event(0, Lane::operands_in, 1, 3),
              event(0, Lane::operands_in, 2, 4), event(0, Lane::operands_in, 4, 5),
              event(1, Lane::compute, 0, 9),     event(0, Lane::compute, 0, 9, Kind::join)};
  const Rows rows = arrange(t);
  const auto at = [&](int i) { return std::pair(rows.places[i].row, rows.places[i].rows); };
  EXPECT_EQ(at(0), std::pair(0, 2));
  EXPECT_EQ(at(1), std::pair(1, 2));
  EXPECT_EQ(at(2), std::pair(0, 2));
  EXPECT_EQ(at(3), std::pair(0, 1));
  EXPECT_EQ(at(4), std::pair(0, 1));
  EXPECT_EQ(rows.depth[0], (std::array<int, schedule::lanes>{0, 0, 2}));
  EXPECT_EQ(rows.depth[1], (std::array<int, schedule::lanes>{1, 0, 0}));
}

TEST(Rows, NoTwoEventsShareAPlace) {
  std::mt19937 random(test::seed());
  Timeline t{"", true, topology::Groups({1}), {}};
  std::uniform_int_distribution<int> start(0, 50), length(0, 6);
  for (int i = 0; i < 60; ++i) {
    const int begin = start(random);
    t.events.push_back(event(0, Lane::operands, begin, begin + length(random)));
  }
  const Rows rows = arrange(t);
  for (std::size_t i = 0; i < t.events.size(); ++i) {
    EXPECT_LT(rows.places[i].row, rows.places[i].rows);
    for (std::size_t k = 0; k < i; ++k) {
      const Event &a = t.events[i], &b = t.events[k];
      EXPECT_TRUE(rows.places[i].row != rows.places[k].row || a.end <= b.begin || b.end <= a.begin)
          << a.begin << " to " << a.end << ", " << b.begin << " to " << b.end;
    }
  }
}

}  // namespace
}  // namespace minitaw::trace

// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <gmock/gmock.h>
#include "fixtures.hpp"
#include "instruments/energy/readings.hpp"
#include "record/layout.hpp"
#include "record/recorder.hpp"
#include "record/sample.hpp"

namespace minitaw::energy {
namespace {
/// A step of 10 sequences of 50 tokens, on two ranks.
CaseResult four_steps() {
  CaseResult r;
  r.settings = record::sample_case().settings;
  r.settings.shape.seq = 50;
  r.settings.shape.micro_batch = 1;
  r.settings.micro_batches = 10;
  r.seconds = {{1, 2}, {2, 1}, {3, 2}, {1, 1}};
  return r;
}

/// Readings of four steps, by hand. Throttled: the first step and the third, by power cap, power
/// brake and slow-down.
Readings of_four_steps() {
  const auto at = [](double clock, double temperature, double power, std::uint64_t throttle) {
    return DeviceSample{clock, 2600, temperature, power, throttle};
  };
  return {.source = "made up",
      .samples = {{at(1980, 60, 500, 0x0), at(1500, 61, 300, 0x4)},
          {at(1700, 65, 600, 0x1), at(1800, 71, 100, 0x2)},
          {at(1975, 70, 550, 0x80), at(1900, 62, 350, 0x8)},
          {at(1980, 69, 450, 0x200), at(1980, 64, 250, 0x10)}},
      .energy = {600, 400.5}};
}

record::Row row_of(const Readings& device, const Readings& node) {
  CaseResult r = four_steps();
  add(device, false, r);
  add(node, true, r);
  record::Row row = record::make_row(r);
  row.set(extension().columns(r));
  return row;
}

void expect_none(const record::Row& row, const std::vector<const char*>& names) {
  for (const char* name : names)
    EXPECT_TRUE(std::isnan(row.real(name))) << name;
}

TEST(Readings, ColumnsAreMeansAndExtremesOverStepsAndRanks) {
  Readings read = of_four_steps();
  const Readings nothing{.source = "unavailable: lost", .samples = {}, .energy = {}};
  record::Row row = row_of(read, nothing);
  EXPECT_DOUBLE_EQ(row.real("energy_per_token"), 1000.5 / 2000);
  EXPECT_DOUBLE_EQ(row.real("power_mean"), (800 + 700 + 900 + 700) / 4.0);
  EXPECT_EQ(row.real("clock_min"), 1500);
  EXPECT_EQ(row.real("temperature_max"), 71);
  EXPECT_EQ(row.real("throttled"), 0.5);
  EXPECT_EQ(row.text("counters") + row.text("node_counters"), "made upunavailable: lost");
  expect_none(row, {"node_energy_per_token", "node_power_mean"});

  row = row_of(nothing, read);
  EXPECT_DOUBLE_EQ(row.real("node_energy_per_token"), 1000.5 / 2000);
  EXPECT_EQ(row.real("node_power_mean"), 775);
  expect_none(row, {"energy_per_token", "power_mean", "clock_min", "temperature_max", "throttled"});

  read.samples[2][1].throttle = throttle_unknown;
  read.samples[1][0].power_w = read.samples[0][1].clock_mhz = std::nan("");
  read.energy[1] = std::nan("");
  row = row_of(read, nothing);
  expect_none(row, {"throttled", "power_mean", "energy_per_token"});
  EXPECT_EQ(row.real("clock_min"), 1700) << "of those that tell";
}

TEST(Readings, HaveTheUnitsAndAxesOfTheLayout) {
  CaseResult r = four_steps();
  for (const bool of_nodes : {false, true})
    add(of_four_steps(), of_nodes, r);
  for (const Dataset& dataset : r.found)
    EXPECT_EQ(dataset.units, record::units_in_case(dataset.path)) << dataset.path;
  const std::vector<double> power = {500, 300, 600, 100, 550, 350, 450, 250};
  EXPECT_EQ(std::get<std::vector<double>>(r.find("node/power")->values), power);
  EXPECT_THAT(r.find("device/clock")->shape, testing::ElementsAre(4, 2));
  EXPECT_THAT(r.find("device/energy")->shape, testing::ElementsAre(1, 2));
}

class File : public test::InFolder {};

TEST_F(File, OfRepetitionsWithAndWithoutCountersHasNone) {
  const std::string file = path("r.h5");
  constexpr const char *with = "made up", *without = "unavailable: lost";
  for (const auto& [first, second] : {std::pair{with, with}, {with, without}, {without, with}}) {
    std::filesystem::remove(file);
    record::Recorder recorder(file, record::sample_session(), {extension()});
    for (int number = 0; const char* counters : {first, second}) {
      CaseResult r = four_steps();
      r.settings.repeats = 2;
      r.repetition.assign(4, 0);
      r.position = {0};
      r.begun = r.ended = {"2026-07-18T09:30:00.250Z"};
      r.seconds = {{1, 2, 3}, {2, 1, 3}, {3, 2, 3}, {1, 1, 3}};
      r.status = Status::oom;  // only its readings matter
      Readings read{.source = counters, .samples = {}, .energy = {}};
      if (counters == with)
        read = {with, std::vector(4, std::vector<DeviceSample>(3, {1, 2, 3, 4, 0})), {1, 2, 3}};
      for (const bool of_nodes : {false, true})
        add(read, of_nodes, r);
      recorder.append(r, number++);
    }
    const bool both = first == second;
    const record::Row row = record::read_contents(file).rows.at(0);
    for (const std::string name : {"", "node_"}) {
      EXPECT_EQ(row.text(name + "counters"), both ? with : without);
      const double energy = row.real(name + "energy_per_token");
      const double power = row.real(name + "power_mean");
      EXPECT_TRUE(both ? energy == 12.0 / (8 * 500) : std::isnan(energy)) << energy;
      EXPECT_TRUE(both ? power == 12 : std::isnan(power)) << power;
    }
  }
}
}  // namespace
}  // namespace minitaw::energy

#include "record/samples.hpp"

#include <cmath>
#include <cstddef>

#include "record/export.hpp"

namespace minitaw::record {

namespace {

/// One row of the long form.
struct Place {
  const StoredCase& stored;
  std::size_t sample;  ///< over all repetitions
  std::int64_t step;   ///< within its repetition, from 0
  std::size_t rank;

  [[nodiscard]] int repetition() const { return stored.repetition[sample]; }
};

Cell of_device(const Place& p, double DeviceSample::* field) {
  return p.stored.device_samples.empty() ? std::nan("") : p.stored.device_samples[p.sample][p.rank].*field;
}

Cell throttle(const Place& p) {
  if (p.stored.device_samples.empty()) return std::nan("");
  return static_cast<std::int64_t>(p.stored.device_samples[p.sample][p.rank].throttle);
}

Cell energy(const Place& p) {
  return p.stored.energy.empty() ? std::nan("") : p.stored.energy[p.repetition()][p.rank];
}

struct Field {
  const char* name;
  const char* units;
  Cell (*value)(const Place& place);
};

constexpr Field fields[] = {
    {"repetition", "1", [](const Place& p) -> Cell { return std::int64_t{p.repetition()}; }},
    {"position", "1", [](const Place& p) -> Cell { return std::int64_t{p.stored.position[p.repetition()]}; }},
    {"step", "1", [](const Place& p) -> Cell { return p.step; }},
    {"rank", "1", [](const Place& p) -> Cell { return static_cast<std::int64_t>(p.rank); }},
    {"seconds", "s", [](const Place& p) -> Cell { return p.stored.seconds[p.sample][p.rank]; }},
    {"clock", "MHz", [](const Place& p) { return of_device(p, &DeviceSample::clock_mhz); }},
    {"memory_clock", "MHz", [](const Place& p) { return of_device(p, &DeviceSample::memory_clock_mhz); }},
    {"temperature", "degC", [](const Place& p) { return of_device(p, &DeviceSample::temperature_c); }},
    {"power", "W", [](const Place& p) { return of_device(p, &DeviceSample::power_w); }},
    {"throttle", "1", throttle},
    {"energy", "J", energy},
};

/// The number of the case and its settings; not the line that repeats them all.
bool identifies(const Column& column) {
  return column.name == "case" || (column.setting && column.name != "identity");
}

std::vector<std::string> titles() {
  std::vector<std::string> found;
  for (const Column& column : columns())
    if (identifies(column)) found.push_back(export_title(column.name, column.units));
  for (const Field& field : fields) found.push_back(export_title(field.name, field.units));
  return found;
}

std::vector<Cell> identity_cells(const Row& row) {
  std::vector<Cell> cells;
  for (std::size_t i = 0; i < columns().size(); ++i)
    if (identifies(columns()[i])) cells.push_back(row.cells()[i]);
  return cells;
}

void append(std::vector<std::vector<Cell>>& rows, const StoredCase& stored) {
  const std::vector<Cell> identity = identity_cells(stored.row);
  std::int64_t step = 0;
  for (std::size_t sample = 0; sample < stored.seconds.size(); ++sample, ++step) {
    if (sample > 0 && stored.repetition[sample] != stored.repetition[sample - 1]) step = 0;
    for (std::size_t rank = 0; rank < stored.seconds[sample].size(); ++rank) {
      std::vector<Cell>& cells = rows.emplace_back(identity);
      for (const Field& field : fields) cells.push_back(field.value({stored, sample, step, rank}));
    }
  }
}

std::vector<std::vector<Cell>> rows_of(const std::vector<StoredCase>& cases) {
  std::vector<std::vector<Cell>> rows;
  for (const StoredCase& stored : cases) append(rows, stored);
  return rows;
}

}  // namespace

std::string samples_to_csv(const std::vector<StoredCase>& cases) {
  return cells_to_csv(titles(), rows_of(cases));
}

std::string samples_to_json(const std::vector<StoredCase>& cases) {
  return cells_to_json(titles(), rows_of(cases));
}

}  // namespace minitaw::record

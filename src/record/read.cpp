#include "record/read.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "record/write.hpp"

namespace minitaw::record {

namespace {

std::vector<Row> transpose(const std::vector<std::vector<Cell>>& table) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < table.front().size(); ++r) {
    std::vector<Cell> cells;
    for (const std::vector<Cell>& column : table) cells.push_back(column.at(r));
    rows.emplace_back(std::move(cells));
  }
  return rows;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

template <class T>
std::vector<std::vector<T>> rows_of(const h5::Matrix<T>& matrix) {
  std::vector<std::vector<T>> rows;
  for (hsize_t r = 0; r < matrix.rows; ++r) {
    const auto begin = matrix.values.begin() + static_cast<std::ptrdiff_t>(r * matrix.columns);
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(matrix.columns));
  }
  return rows;
}

/// Values of all `ranks`, one row for each of `count`, or none at all.
template <class T>
void require_shape(const h5::Matrix<T>& matrix, std::size_t count, std::int64_t ranks,
                   const std::string& name) {
  require(matrix.values.empty() || (matrix.rows == count && matrix.columns == static_cast<hsize_t>(ranks)),
          fmt::format("{} has {} x {} values for {} x {}", name, matrix.rows, matrix.columns, count, ranks));
}

std::vector<std::vector<double>> read_seconds(hid_t group, std::int64_t ranks) {
  const h5::Matrix<double> seconds = h5::read_real_matrix(group, "seconds");
  require_shape(seconds, seconds.rows, ranks, "seconds");
  const auto is_time = [](double s) { return std::isfinite(s) && s > 0; };
  require(std::ranges::all_of(seconds.values, is_time), "seconds holds what is no time");
  return seconds.values.empty() ? std::vector<std::vector<double>>() : rows_of(seconds);
}

std::vector<int> read_counts(hid_t group, const std::string& name, std::int64_t least, std::int64_t end) {
  const std::vector<std::int64_t> values = h5::read_integers(group, name);
  for (const std::int64_t value : values)
    require(value >= least && value < end, fmt::format("{} holds {}", name, value));
  return {values.begin(), values.end()};
}

void read_repetitions(hid_t group, StoredCase& found) {
  constexpr std::int64_t any = std::int64_t{1} << 31;
  found.position = read_counts(group, "position", -1, any);
  found.repetition = read_counts(group, "repetition", 0, std::ssize(found.position));
  require(found.repetition.size() == found.seconds.size(), "repetition and seconds differ in length");
}

struct DeviceFields {
  h5::Matrix<double> clock, memory_clock, temperature, power;
  h5::Matrix<std::uint64_t> throttle;
};

DeviceFields read_fields(hid_t group, std::size_t samples, std::int64_t ranks) {
  const auto read = [&](const std::string& name) {
    h5::Matrix<double> field = h5::read_real_matrix(group, name);
    require_shape(field, samples, ranks, name);
    return field;
  };
  DeviceFields fields{read("clock"), read("memory_clock"), read("temperature"), read("power"),
                      h5::read_unsigned_matrix(group, "throttle")};
  require_shape(fields.throttle, samples, ranks, "throttle");
  const std::size_t size = fields.clock.values.size();
  for (const auto* field : {&fields.memory_clock, &fields.temperature, &fields.power})
    require(field->values.size() == size, "counters of the device differ in length");
  require(fields.throttle.values.size() == size, "counters of the device differ in length");
  return fields;
}

void read_device(hid_t parent, StoredCase& found, std::int64_t ranks) {
  found.counters = h5::read_text(parent, "counters");
  const h5::Id group = h5::open_group(parent, "device");
  const DeviceFields fields = read_fields(group.get(), found.seconds.size(), ranks);
  const std::size_t columns = fields.clock.columns;
  for (std::size_t i = 0; i < fields.clock.values.size(); ++i) {
    if (i % columns == 0) found.device_samples.emplace_back();
    found.device_samples.back().push_back({fields.clock.values[i], fields.memory_clock.values[i],
                                           fields.temperature.values[i], fields.power.values[i],
                                           fields.throttle.values[i]});
  }
  const h5::Matrix<double> energy = h5::read_real_matrix(group.get(), "energy");
  require_shape(energy, found.position.size(), ranks, "energy");
  if (!energy.values.empty()) found.energy = rows_of(energy);
}

StoredCase read_group(const MemoryFile& file, const Row& row) {
  const h5::Id cases = h5::open_group(file.root(), "cases");
  const h5::Id group = h5::open_group(cases.get(), numbered(static_cast<int>(row.integer("case"))));
  const std::int64_t ranks = row.integer("ranks");
  StoredCase found{
      row, read_seconds(group.get(), ranks), {}, {}, h5::read_reals(group.get(), "losses"), {}, {}, {}};
  read_repetitions(group.get(), found);
  read_device(group.get(), found, ranks);
  return found;
}

/// What `read` makes of the provenance of each session, in order.
template <class Read>
auto read_each(const MemoryFile& file, const std::string& path, const Read& read) {
  return reading(path, [&] {
    const h5::Id first = h5::open_group(file.root(), "provenance");
    const h5::Id resumed = h5::open_group(first.get(), "resumed");
    std::vector<decltype(read(first.get()))> found = {read(first.get())};
    for (int number = 1; number < count_sessions(file); ++number)
      found.push_back(read(h5::open_group(resumed.get(), numbered(number)).get()));
    return found;
  });
}

}  // namespace

std::vector<Row> read_summary(const MemoryFile& file, const std::string& path) {
  return reading(path, [&] {
    const h5::Id group = h5::open_group(file.root(), "summary");
    const Row sample = sample_row();
    std::vector<std::vector<Cell>> table;
    for (std::size_t i = 0; i < columns().size(); ++i)
      table.push_back(h5::read_column(group.get(), columns()[i].name, sample.cells()[i]));
    for (const std::vector<Cell>& column : table)
      if (column.size() != table.front().size())
        throw std::runtime_error("columns of the summary differ in length");
    return transpose(table);
  });
}

std::vector<Row> read_rows(const std::string& path) { return read_summary(MemoryFile::load(path), path); }

StoredCase read_case(const MemoryFile& file, const std::string& path, const Row& row) {
  try {
    return read_group(file, row);
  } catch (const std::runtime_error& error) {
    throw InputError(fmt::format("{} is damaged: case {}: {}", path, row.integer("case"), error.what()));
  }
}

int count_sessions(const MemoryFile& file) {
  const h5::Id provenance = h5::open_group(file.root(), "provenance");
  const h5::Id resumed = h5::open_group(provenance.get(), "resumed");
  H5G_info_t info{};
  h5::check(H5Gget_info(resumed.get(), &info), "count the sessions");
  return 1 + static_cast<int>(info.nlinks);
}

std::vector<std::string> read_git_hashes(const MemoryFile& file, const std::string& path) {
  return read_each(file, path, [](hid_t group) { return h5::read_text(group, "git_hash"); });
}

std::vector<std::vector<std::string>> read_links(const MemoryFile& file, const std::string& path) {
  return read_each(file, path, [](hid_t group) { return h5::read_text_list(group, "links"); });
}

}  // namespace minitaw::record

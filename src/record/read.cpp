#include "record/read.hpp"

#include <cmath>
#include <stdexcept>

#include "record/reading.hpp"
#include "record/recorder.hpp"
#include "record/write.hpp"

namespace minitaw::record {

namespace {

Cell sample_of(std::size_t column) {
  static const Row sample = [] {
    CaseResult empty;
    empty.settings.shape = {1, 2, 1, 1, {1}, 1, 1, 1};
    return make_row(empty);
  }();
  return sample.cells()[column];
}

/// For what older files do not have.
Cell unknown_of(std::size_t column) {
  if (std::holds_alternative<double>(sample_of(column))) return std::nan("");
  if (std::holds_alternative<std::string>(sample_of(column))) return std::string();
  return std::int64_t{0};
}

std::vector<Row> transpose(const std::vector<std::vector<Cell>>& table) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < table.front().size(); ++r) {
    std::vector<Cell> cells;
    for (const std::vector<Cell>& column : table) cells.push_back(column.at(r));
    rows.emplace_back(std::move(cells));
  }
  return rows;
}

}  // namespace

std::vector<Row> read_summary(const Image& image, const std::string& path) {
  return reading(path, [&] {
    const h5::Id group = h5::open_group(image.root(), "summary");
    std::vector<std::vector<Cell>> table;
    for (std::size_t i = 0; i < columns().size(); ++i)
      table.push_back(columns()[i].since <= image.schema()
                          ? h5::read_column(group.get(), columns()[i].name, sample_of(i))
                          : std::vector<Cell>(table.front().size(), unknown_of(i)));
    for (const std::vector<Cell>& column : table)
      if (column.size() != table.front().size())
        throw std::runtime_error("columns of the summary differ in length");
    return transpose(table);
  });
}

int count_sessions(const Image& image) {
  const h5::Id provenance = h5::open_group(image.root(), "provenance");
  const h5::Id resumed = h5::open_group(provenance.get(), "resumed");
  H5G_info_t info{};
  h5::check(H5Gget_info(resumed.get(), &info), "count the sessions");
  return 1 + static_cast<int>(info.nlinks);
}

std::vector<Row> read_rows(const std::string& path) { return read_summary(Image::load(path), path); }

}  // namespace minitaw::record

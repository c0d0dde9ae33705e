// SPDX-License-Identifier: BSD-3-Clause
#include "record/recorder.hpp"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <iterator>
#include <set>
#include "base/error.hpp"
#include "record/layout.hpp"

namespace minitaw::record {
namespace fs = std::filesystem;

namespace {
/// Returns the result of `read`. Errors of HDF5 or of a reader become one that names the file.
template <class Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const std::runtime_error& error) {
    std::string why = error.what();  // with names of the file, which may hold anything
    std::ranges::replace_if(why, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    throw InputError(fmt::format(
        "{} is damaged, or no result of miniTaw: {}; get the file again from whoever measured it",
        path,
        why));
  }
}

void require(bool holds, const std::string& what) {
  if (!holds)
    throw std::runtime_error(what);
}

std::string case_path(int number) {
  return fmt::format("cases/{:04}", number);
}

std::string session_path(int n) {
  return n == 0 ? "provenance" : fmt::format("provenance/resumed/{:04}", n);
}

// Datasets of a case. Their units are those of layout.txt.

Dataset scalar(std::string path, const Cell& value) {
  return {.path = std::move(path), .values = one(value)};
}

/// All integers become one type.
template <class T>
using Stored = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;

template <class T>
Dataset by(std::string axis, std::string path, const std::vector<T>& values) {
  return {.path = std::move(path),
      .axes = std::move(axis),
      .values = std::vector<Stored<T>>(values.begin(), values.end()),
      .shape = {values.size()}};
}

/// [row][column]
template <class Rows>
Dataset table(std::string axes,
    std::string path,
    const Rows& rows,
    const std::vector<std::string>& labels = {}) {
  std::vector<Stored<std::decay_t<decltype(rows[0][0])>>> flat;
  for (const auto& row : rows)
    flat.insert(flat.end(), row.begin(), row.end());
  const std::size_t columns = rows.empty() ? 0 : rows[0].size();
  return {.path = std::move(path),
      .axes = std::move(axes),
      .values = std::move(flat),
      .shape = {rows.size(), columns},
      .labels = labels};
}

std::vector<Dataset> memory_of(const std::vector<RankMemory>& ranks) {
  const auto kinds = schedule::names_of<schedule::Memory>();
  return {table("rank, kind", "memory/planned", list_of(ranks, &RankMemory::planned), kinds),
      table("rank, kind", "memory/measured", list_of(ranks, &RankMemory::measured), kinds),
      by("rank", "memory/other", list_of(ranks, &RankMemory::other)),
      by("rank", "memory/process_begin", list_of(ranks, &RankMemory::process_begin)),
      by("rank", "memory/process_peak", list_of(ranks, &RankMemory::process_peak))};
}

std::vector<Dataset> time_of(const CaseResult& r) {
  using Time = trace::RankTime;
  const auto traffic = schedule::names_of<schedule::Traffic>();
  const double length = r.accounted_step < 0 ? std::nan("") : r.accounted_length;
  const auto of_rank = [&](const std::string& name, double Time::* part) {
    return by("rank", "time/" + name, list_of(r.time, part));
  };
  return {scalar("time/step", std::int64_t{r.accounted_step}),
      scalar("time/length", length),
      of_rank("compute", &Time::compute),
      table("rank, kind", "time/exposed_by_kind", list_of(r.time, &Time::exposed), traffic),
      of_rank("idle", &Time::idle),
      of_rank("communication", &Time::communication),
      of_rank("hidden", &Time::hidden)};
}

std::vector<Dataset> bytes_of_step(const CaseResult& r) {
  const auto kinds = schedule::names_of<schedule::Traffic>();
  const auto matrix = [&](const std::string& path, const std::vector<std::uint64_t>& bytes) {
    const std::size_t ranks = bytes.empty() ? 0 : static_cast<std::size_t>(r.settings.ranks);
    return Dataset{.path = path,
        .axes = "from rank, to rank, kind",
        .values = std::vector<std::int64_t>(bytes.begin(), bytes.end()),
        .shape = {ranks, ranks, kinds.size()},
        .labels = kinds};
  };
  return {matrix("bytes/planned", r.planned_bytes), matrix("bytes/counted", r.counted_bytes)};
}

std::vector<Dataset> timeline_of(const std::vector<trace::Event>& events) {
  std::vector<Dataset> all;
  for (const trace::Field& field : trace::fields()) {
    const auto values = [&](auto value) {
      return by("event", std::string("timeline/") + field.name, list_of(events, value));
    };
    all.push_back(std::visit(values, field.value));
    all.back().codes = field.codes;
  }
  return all;
}

std::vector<Dataset> datasets_of(const CaseResult& r) {
  std::vector<Dataset> all = {
      table("timed step, rank", "seconds", r.seconds),
      by("step", "losses", r.losses),
      by("timed step", "repetition", r.repetition),
      by("repetition", "position", r.position),
      by("repetition", "window/begin", r.begun),
      by("repetition", "window/end", r.ended),
      by("rank", "idle_ticks", r.idle_ticks),
      scalar("matmul_algorithms", r.matmul_algorithms),
  };
  const auto add = [&](std::vector<Dataset> some) {
    std::ranges::move(some, std::back_inserter(all));
  };
  add(memory_of(r.memory));
  add(time_of(r));
  add(bytes_of_step(r));
  if (r.timeline)
    add(timeline_of(r.timeline->events));
  for (Dataset& dataset : all)
    dataset.units = units_in_case(dataset.path);
  return all;
}

/// Writes datasets into a group.
void write(hid_t file, const std::string& group, std::vector<Dataset> datasets) {
  for (Dataset& dataset : datasets) {
    dataset.path.insert(0, group + "/");
    h5::write(file, dataset);
  }
}

/// Seconds [timed step][rank], as many as there are.
std::vector<std::vector<double>> read_seconds(hid_t file, const std::string& path) {
  const h5::Array<double> found = h5::read<double>(file, path, 2);
  const auto ranks = static_cast<std::ptrdiff_t>(found.shape[1]);
  std::vector<std::vector<double>> seconds;
  for (auto at = found.values.begin(); at != found.values.end(); at += ranks)
    seconds.emplace_back(at, at + ranks);
  return seconds;
}

std::vector<int> read_counts(hid_t file, const std::string& path) {
  const std::vector<std::int64_t> values = h5::read<std::int64_t>(file, path, 1).values;
  return {values.begin(), values.end()};
}

std::vector<std::string> read_list(hid_t file, const std::string& path) {
  return h5::read<std::string>(file, path, 1).values;
}

std::vector<Row> read_rows(hid_t file) {
  const std::size_t cases = h5::read<std::int64_t>(file, "summary/case", 1).values.size();
  std::vector<Row> rows(cases, empty_row());
  for (std::size_t at = 0; at < empty_row().columns.size(); ++at) {
    const Column& column = empty_row().columns[at];
    const auto read = [&]<class T>(const T&) {
      const std::string path = "summary/" + column.name;
      const std::vector<T> cells = h5::read<T>(file, path, 1).values;
      require(cells.size() == cases, path + " has no value for each case");
      for (std::size_t row = 0; row < cases; ++row)
        rows[row].columns[at].value = cells[row];
    };
    std::visit(read, column.value);
  }
  return rows;
}

/// The file that is to be replaced: not a link to it.
std::string resolved(const std::string& path) {
  if (path.empty() || fs::path(path).filename().empty())
    throw InputError(fmt::format(
        "\"{}\" is not the name of a result file; write for example -o results.h5", path));
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw InputError(
        fmt::format("{} cannot be written: there is no folder {}", path, folder.string()));
  if (!fs::is_symlink(path, error))
    return path;
  const fs::path target = fs::canonical(path, error);
  if (error)
    throw InputError(fmt::format("{} cannot be read ({})", path, error.message()));
  return target.string();
}

/// Puts what the file has of a case before the new repetitions.
template <class T>
void prepend(std::vector<T> earlier, std::vector<T>& later) {
  std::ranges::copy(later, std::back_inserter(earlier));
  later = std::move(earlier);
}

/// The file is replaced, not written: its own permissions would not hold that up.
void require_unprotected(const std::string& path) {
  constexpr fs::perms write =
      fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  std::error_code error;
  if ((fs::status(path, error).permissions() & write) == fs::perms::none)
    throw InputError(fmt::format("{} is write-protected; name another file with -o", path));
}
}  // namespace

void Recorder::join(int number, CaseResult& result) const {
  reading(path_, [&] {
    const std::string group = case_path(number) + "/";
    prepend(read_seconds(file_, group + "seconds"), result.seconds);
    prepend(read_counts(file_, group + "repetition"), result.repetition);
    prepend(read_counts(file_, group + "position"), result.position);
    prepend(read_list(file_, group + "window/begin"), result.begun);
    prepend(read_list(file_, group + "window/end"), result.ended);
  });
}

Contents read_contents(hid_t file, const std::string& path) {
  return reading(path, [&] {
    Contents found{read_rows(file), {}, {}};
    for (int number = 0; number == 0 || h5::has(file, session_path(number)); ++number) {
      const std::string session = session_path(number) + "/";
      found.git_hashes.push_back(h5::read<std::string>(file, session + "git_hash", 0).values.at(0));
      found.links.push_back(read_list(file, session + "links"));
    }
    return found;
  });
}

Contents read_contents(const std::string& path) {
  return read_contents(load_file(path), path);
}

Recorder::Recorder(const std::string& path, Provenance session, Extensions extensions)
    : path_(resolved(path)),
      provenance_(std::move(session)),
      extensions_(std::move(extensions)),
      mark_(path_),
      file_(fs::exists(path_) ? load_file(path_) : new_file()) {
  fs::exists(path_) ? resume() : begin();
}

void Recorder::begin() {
  write_session();
  (void)h5::make_group(file_, "provenance/resumed");
  (void)h5::make_group(file_, "cases");
  write_progress();
  try {
    save();
  } catch (const std::runtime_error& error) {
    throw InputError(error.what());  // nothing has run yet: the name that was asked for is at fault
  }
}

void Recorder::resume() {
  require_unprotected(path_);
  Contents found = read_contents(file_, path_);
  rows_ = std::move(found.rows);
  sessions_ = static_cast<int>(found.git_hashes.size());
  std::set<std::string> others(found.git_hashes.begin(), found.git_hashes.end());
  others.erase(std::string(build::git_hash));
  if (!others.empty())
    note_ = fmt::format("{} was measured by git hash {}, this program is {}; name another file "
                        "with -o to measure all again",
        path_,
        fmt::join(others, ", "),
        build::git_hash);
}

void Recorder::write_session() {
  if (written_)
    return;
  write(file_, session_path(sessions_), provenance_);
  written_ = true;
}

void Recorder::write_progress() {
  for (std::size_t at = 0; at < empty_row().columns.size(); ++at) {
    const Column& column = empty_row().columns[at];
    const auto write = [&]<class T>(const T&) {
      const auto cell = [&](const Row& row) { return std::get<T>(row.columns[at].value); };
      Dataset cells = by("case", "summary/" + column.name, list_of(rows_, cell));
      cells.units = column.units;
      h5::write(file_, cells, true);
    };
    std::visit(write, column.value);
  }
  const h5::Id summary = h5::open_group(file_, "summary");
  h5::write_attribute(summary, "verdict", one(verdict(rows_)));
  for (const Extension& extension : extensions_)
    if (extension.sentence)
      h5::write_attribute(summary, extension.attribute, one(extension.sentence(rows_)));
}

Row Recorder::append(CaseResult result, int repetition) {
  write_session();
  const std::string identity = deck::identity(result.settings);
  const auto known =
      std::ranges::find_if(rows_, [&](const Row& row) { return row.text("identity") == identity; });
  const auto number = static_cast<int>(known - rows_.begin());
  std::ranges::fill(result.repetition, repetition);
  const bool is_joined = repetition > 0 && known != rows_.end();
  if (is_joined)
    join(number, result);
  Row row = make_row(result, number, sessions_);
  for (const Extension& extension : extensions_)
    if (is_joined)
      extension.join(*known, result.settings, row);
  if (known == rows_.end())
    rows_.push_back(row);
  else
    *known = row;
  h5::remove(file_, case_path(number));
  write(file_, case_path(number), datasets_of(result));
  write_progress();
  save();
  return row;
}

void Recorder::save() {
  replace_file(path_, bytes_of(file_));
}

int repetitions_of(const Row& row) {
  const std::int64_t steps = row.integer("steps");
  return steps < 1 ? 0 : static_cast<int>(row.integer("samples") / steps);
}

bool is_finished(const Row& row) {
  return row.text("status") == name_of(Status::ok) && repetitions_of(row) >= row.integer("repeats");
}
}  // namespace minitaw::record

// SPDX-License-Identifier: BSD-3-Clause
#include "record/recorder.hpp"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <sstream>
#include "base/error.hpp"
#include "record/layout.hpp"

namespace minitaw::record {
namespace fs = std::filesystem;
static constexpr double none = std::numeric_limits<double>::quiet_NaN();

namespace {
/// Returns the result of `read`. Errors of HDF5 or of a reader become one that names the file.
template <class Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const std::runtime_error& error) {
    throw InputError(fmt::format(
        "{} is damaged, or no result of miniTaw: {}; get the file anew from whoever measured it",
        path,
        error.what()));
  }
}

void require(bool holds, const std::string& what) {
  if (!holds)
    throw std::runtime_error(what);
}

std::string case_path(int number) {
  return fmt::format("cases/{:04}/", number);
}

std::string session_path(int n) {
  return n == 0 ? "provenance/" : fmt::format("provenance/resumed/{:04}/", n);
}

template <class T>
h5::Dataset list(
    std::string path, std::string units, std::string axis, const std::vector<T>& values) {
  using Stored = std::conditional_t<std::is_same_v<T, int>, std::int64_t, T>;
  return {std::move(path),
      std::move(units),
      std::move(axis),
      std::vector<Stored>(values.begin(), values.end()),
      {values.size()}};
}

/// [row][column] of which a part is written, or the whole.
template <class Rows, class Part = std::identity>
h5::Dataset table(std::string path,
    std::string units,
    std::string axes,
    const Rows& rows,
    const Part& part = {},
    std::vector<std::string> labels = {}) {
  std::vector<std::decay_t<decltype(std::invoke(part, rows[0][0]))>> flat;
  for (const auto& row : rows)
    std::ranges::transform(row, std::back_inserter(flat), part);
  const std::vector<hsize_t> shape = {rows.size(), rows.empty() ? 0 : rows[0].size()};
  return {std::move(path),
      std::move(units),
      std::move(axes),
      std::move(flat),
      shape,
      std::move(labels)};
}

/// The datasets of the group `device`: readings after a step.
struct Field {
  const char *path, *units;
  double DeviceSample::* value;
};

constexpr Field device_fields[] = {{"device/clock", "MHz", &DeviceSample::clock_mhz},
    {"device/memory_clock", "MHz", &DeviceSample::memory_clock_mhz},
    {"device/temperature", "degC", &DeviceSample::temperature_c},
    {"device/power", "W", &DeviceSample::power_w}};

std::vector<h5::Dataset> datasets(const CaseResult& r) {
  using Time = trace::RankTime;
  const std::string step_rank = "timed step, rank", rank_kind = "rank, kind", per_step = "s/step";
  const double length = r.accounted_step < 0 ? std::nan("") : r.accounted_length;
  const auto memory = schedule::names_of<schedule::Memory>();
  const auto traffic = schedule::names_of<schedule::Traffic>();
  const auto time = [&](const std::string& name, const auto& part) {
    return list("time/" + name, per_step, "rank", list_of(r.time, part));
  };
  const auto of_memory = [&](const std::string& name, std::uint64_t RankMemory::* bytes) {
    return list("memory/" + name, "B", "rank", list_of(r.memory, bytes));
  };
  const auto bytes = [&](const std::string& name,
                         const std::vector<std::uint64_t>& values) -> h5::Dataset {
    const hsize_t ranks = values.empty() ? 0 : static_cast<hsize_t>(r.settings.ranks);
    return {"bytes/" + name,
        "B/step",
        "from rank, to rank, kind",
        values,
        {ranks, ranks, traffic.size()},
        traffic};
  };
  std::vector<h5::Dataset> all = {
      list("settings/ffn_per_layer", "1", "layer", r.settings.shape.ffn),
      table("seconds", "s", step_rank, r.seconds),
      list("losses", "nat/token", "step", r.losses),
      list("repetition", "1", "timed step", r.repetition),
      list("position", "1", "repetition", r.position),
      list("window/begin", "text", "repetition", r.begun),
      list("window/end", "text", "repetition", r.ended),
      table("device/throttle", "1", step_rank, r.device.samples, &DeviceSample::throttle),
      table("device/energy", "J", "repetition, rank", r.device.energy),
      {"node_counters", "text", "", h5::one(r.node.source)},
      table("node/power", "W", step_rank, r.node.samples, &DeviceSample::power_w),
      table("node/energy", "J", "repetition, rank", r.node.energy),
      table("memory/planned", "B", rank_kind, list_of(r.memory, &RankMemory::planned), {}, memory),
      table(
          "memory/measured", "B", rank_kind, list_of(r.memory, &RankMemory::measured), {}, memory),
      of_memory("other", &RankMemory::other),
      of_memory("libraries", &RankMemory::libraries),
      of_memory("process_begin", &RankMemory::process_begin),
      of_memory("process_peak", &RankMemory::process_peak),
      of_memory("device_begin", &RankMemory::device_begin),
      of_memory("device_used", &RankMemory::device_used),
      {"time/step", "1", "", h5::one(std::int64_t{r.accounted_step})},
      {"time/length", "s", "", h5::one(length)},
      time("compute", &Time::compute),
      time("exposed", &Time::exposed_total),
      time("idle", &Time::idle),
      time("communication", &Time::communication),
      time("hidden", &Time::hidden),
      list("time/bubble",
          "1",
          "rank",
          list_of(r.time, [&](const Time& t) { return t.idle / length; })),
      list("time/overlap", "1", "rank", list_of(r.time, &Time::overlap)),
      table("time/exposed_by_kind",
          per_step,
          rank_kind,
          list_of(r.time, &Time::exposed),
          {},
          traffic),
      bytes("planned", r.planned_bytes),
      bytes("counted", r.counted_bytes),
      {"blame/text", "text", "", h5::one(r.blame.text)},
      {"blame/culprit", "text", "", h5::one(r.blame.culprit)},
      {"blame/slower", "1", "", h5::one(r.blame.slower)},
      {"blame/share", "1", "", h5::one(r.blame.share)},
      list("blame/ratios", "1", "rank", r.blame.ratios),
      {"bytes/source", "text", "", h5::one(r.bytes_source)},
      list("idle_ticks", "tick", "rank", r.idle_ticks),
      {"matmul_algorithms", "text", "", h5::one(r.matmul_algorithms)}};
  for (const Field& field : device_fields)
    all.push_back(table(field.path, field.units, step_rank, r.device.samples, field.value));
  if (!r.timeline)
    return all;
  for (const trace::Field& field : trace::fields()) {
    const auto values = [&](auto value) {
      return list(std::string("timeline/") + field.name,
          field.units,
          "event",
          list_of(r.timeline->events, value));
    };
    all.push_back(std::visit(values, field.value));
    all.back().codes = field.codes;
  }
  return all;
}

/// Writes datasets into a group.
void write(hid_t file, const std::string& group, std::vector<h5::Dataset> datasets) {
  for (h5::Dataset& dataset : datasets) {
    dataset.path.insert(0, group);
    h5::write(file, dataset);
  }
}

void write_case(hid_t file, const std::string& path, const CaseResult& result, const Row& row) {
  for (const Column& column : row.columns) {
    if (column.place == Place::nowhere)
      continue;
    constexpr const char* group[] = {"", "", "settings/", "verification/"};
    h5::write(file,
        {fmt::format("{}{}{}", path, group[static_cast<int>(column.place)], column.name),
            std::string(column.units),
            "",
            h5::one(column.value)});
  }
  write(file, path, datasets(result));
}

/// The rows of a table of all ranks: as many as `count` says, or none at all.
template <class T = double>
std::vector<std::vector<T>> read_table(
    hid_t file, const std::string& path, std::size_t ranks, std::size_t count) {
  const h5::Array<T> found = h5::read<T>(file, path, 2);
  std::vector<std::vector<T>> table;
  for (auto at = found.values.begin(); at != found.values.end();
      at += static_cast<std::ptrdiff_t>(ranks)) {
    require(found.shape == std::vector<hsize_t>{count, ranks}, path + " has another shape");
    table.emplace_back(at, at + static_cast<std::ptrdiff_t>(ranks));
  }
  return table;
}

std::vector<int> read_counts(hid_t file, const std::string& path) {
  const std::vector<std::int64_t> values = h5::read<std::int64_t>(file, path, 1).values;
  return {values.begin(), values.end()};
}

/// Returns whether the file has a dataset; an earlier program may not have written its group
/// either.
bool is_there(hid_t file, const std::string& path) {
  const std::string group = path.substr(0, path.rfind('/'));
  return H5Lexists(file, group.c_str(), H5P_DEFAULT) > 0 &&
         H5Lexists(file, path.c_str(), H5P_DEFAULT) > 0;
}

/// Texts that an earlier program may not have written.
std::vector<std::string> read_list(hid_t file, const std::string& path) {
  return is_there(file, path) ? h5::read<std::string>(file, path, 1).values
                              : std::vector<std::string>();
}

/// The file that is to be replaced: not the link that it lies behind.
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

std::string running_name(const std::string& path) {
  return path + ".running";
}

/// Puts what the file has of a case before the new repetitions.
template <class T>
void prepend(std::vector<T> earlier, std::vector<T>& later) {
  earlier.insert(earlier.end(), later.begin(), later.end());
  later = std::move(earlier);
}

/// `row`: of the earlier repetitions. Who does not stand out in each of them is not named.
void join(CaseResult earlier, const Row& row, CaseResult& result) {
  if (trace::Blame& blame = result.blame; row.text("culprit") != blame.culprit) {
    if (!blame.culprit.empty())
      blame.text = "no rank or link stands out in every repetition";
    blame.culprit.clear();
    blame.slower = blame.share = trace::Blame::unknown;
  }
  prepend(std::move(earlier.seconds), result.seconds);
  prepend(std::move(earlier.repetition), result.repetition);
  prepend(std::move(earlier.position), result.position);
  prepend(std::move(earlier.begun), result.begun);
  prepend(std::move(earlier.ended), result.ended);
  // Counters of some repetitions only would be taken for those of all.
  for (Readings CaseResult::* part : {&CaseResult::device, &CaseResult::node}) {
    Readings &before = earlier.*part, &all = result.*part;
    if (before.samples.empty())
      all.source = before.source;
    prepend(std::move(before.samples), all.samples);
    prepend(std::move(before.energy), all.energy);
    if (all.samples.size() != result.seconds.size())
      all.samples.clear();
    if (all.energy.size() != result.position.size())
      all.energy.clear();
  }
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

CaseResult read_case(hid_t file, const std::string& path, int number, int ranks) {
  return reading(path, [&] {
    const std::string group = case_path(number);
    const auto columns = static_cast<std::size_t>(ranks);
    CaseResult found;
    found.position = read_counts(file, group + "position");
    found.repetition = read_counts(file, group + "repetition");
    const std::size_t steps = found.repetition.size();
    found.seconds = read_table(file, group + "seconds", columns, steps);
    found.begun = read_list(file, group + "window/begin");
    found.ended = read_list(file, group + "window/end");
    for (auto* times : {&found.begun, &found.ended})
      times->resize(found.position.size());
    for (Readings* read : {&found.device, &found.node}) {
      const std::string part = read == &found.node ? "node" : "device";
      const std::string source = group + (part == "node" ? "node_" : "") + "counters";
      if (part == "node" && !is_there(file, source))
        continue;  // an earlier program
      read->source = h5::read<std::string>(file, source, 0).values.at(0);
      read->energy = read_table(file, group + part + "/energy", columns, found.position.size());
    }
    for (const auto& row :
        read_table<std::uint64_t>(file, group + "device/throttle", columns, steps))
      for (std::vector<DeviceSample>& samples = found.device.samples.emplace_back();
          const std::uint64_t bits : row)
        samples.push_back({0, 0, 0, 0, bits});
    for (const Field& field : device_fields) {
      const auto values =
          read_table(file, group + field.path, columns, found.device.samples.size());
      for (std::size_t step = 0; step < values.size(); ++step)
        for (std::size_t rank = 0; rank < columns; ++rank)
          found.device.samples[step][rank].*field.value = values[step][rank];
    }
    if (!is_there(file, group + "node/power"))
      return found;
    for (const auto& row : read_table(file, group + "node/power", columns, steps))
      for (std::vector<DeviceSample>& samples = found.node.samples.emplace_back();
          const double watts : row)
        samples.push_back({none, none, none, watts, throttle_unknown});
    return found;
  });
}

Contents read_contents(hid_t file, const std::string& path) {
  return reading(path, [&] {
    auto [rows, sessions] = read_summary(file);
    Contents found{std::move(rows), {}, {}};
    for (int number = 0; number < sessions; ++number) {
      const std::string session = session_path(number);
      found.git_hashes.push_back(h5::read<std::string>(file, session + "git_hash", 0).values.at(0));
      found.links.push_back(read_list(file, session + "links"));
    }
    return found;
  });
}

Contents read_contents(const std::string& path) {
  return read_contents(load_file(path), path);
}

Recorder::Recorder(const std::string& path, Provenance session)
    : path_(resolved(path)),
      provenance_(std::move(session)),
      state_(state_of(path_)),
      file_(state_ ? load_file(path_) : new_file()) {
  remove_stale_copy(path_);
  std::getline(std::ifstream(running_name(path_)), interrupted_);
  state_ ? resume() : begin();
}

void Recorder::begin() {
  write_session();
  (void)h5::make_group(file_, "provenance/resumed");
  (void)h5::make_group(file_, "cases");
  write_progress(0);
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
                        "with -o to measure anew",
        path_,
        fmt::join(others, ", "),
        build::git_hash);
}

void Recorder::write_session() {
  write(file_, session_path(sessions_), provenance_);
  written_ = true;
}

void Recorder::write_progress(std::size_t first) {
  const Row sample = sample_row();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < sample.columns.size(); ++i) {
    const Column& column = sample.columns[i];
    names.emplace_back(column.name);
    std::visit(
        [&]<class T>(const T&) {
          const auto cells =
              list_of(rows_, [&](const Row& row) { return std::get<T>(row.columns[i].value); });
          h5::write(file_,
              list(
                  fmt::format("summary/{}", column.name), std::string(column.units), "case", cells),
              true,
              first);
        },
        column.value);
  }
  const h5::Id summary = h5::open_group(file_, "summary");
  if (first == 0)
    h5::write_attribute(summary, "columns", names, true);  // HDF5 keeps no order
  h5::write_attribute(summary, "verdict", h5::one(verdict(rows_)));
  h5::write_attribute(summary, "figures_of_merit", figures_of_merit(rows_), true);
  h5::write_attribute(summary, "stands_out", standing_out(rows_), true);
  h5::write(file_, list(session_path(sessions_) + "log", "text", "line", lines_), true, logged_);
  logged_ = lines_.size();
}

void Recorder::log(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    lines_.push_back(line);
}

void Recorder::finish() {
  std::error_code error;
  std::filesystem::remove(running_name(path_), error);
  if (!written_)
    return;
  write_progress(rows_.size());
  save();
}

void Recorder::begin_case(const Case& c) const {
  std::ofstream(running_name(path_)) << deck::identity(c) << '\n';
}

Row Recorder::append(CaseResult result, int repetition) {
  const bool begins = !written_;
  if (begins)
    write_session();
  const std::string identity = deck::identity(result.settings);
  const auto known =
      std::ranges::find_if(rows_, [&](const Row& row) { return row.text("identity") == identity; });
  const auto number = static_cast<int>(known - rows_.begin());
  std::ranges::fill(result.repetition, repetition);
  if (repetition > 0 && known != rows_.end())
    join(
        read_case(file_, path_, number, static_cast<int>(known->integer("ranks"))), *known, result);
  const Row row = make_row(result, number, sessions_);
  const std::string path = case_path(number);
  if (known == rows_.end()) {
    rows_.push_back(row);
  } else {
    *known = row;
    h5::check(
        H5Ldelete(file_, path.substr(0, path.size() - 1).c_str(), H5P_DEFAULT), "replace a case");
  }
  write_case(file_, path, result, row);
  write_progress(begins ? 0 : static_cast<std::size_t>(number));  // an older file may lack columns
  save();
  return row;
}

void Recorder::put(const std::string& group, std::vector<h5::Dataset> datasets) {
  if (!written_)
    write_session();
  if (H5Lexists(file_, group.c_str(), H5P_DEFAULT) > 0)
    h5::check(H5Ldelete(file_, group.c_str(), H5P_DEFAULT), "replace a group");
  write(file_, group + "/", std::move(datasets));
  save();
}

void Recorder::save() {
  state_ = replace_file(path_, bytes_of(file_), state_);
}

int repetitions_of(const Row& row) {
  const std::int64_t steps = row.integer("steps");
  return steps < 1 ? 0 : static_cast<int>(row.integer("samples") / steps);
}

bool is_finished(const Row& row) {
  return row.text("status") == name_of(Status::ok) && repetitions_of(row) >= row.integer("repeats");
}
}  // namespace minitaw::record

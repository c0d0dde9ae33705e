// SPDX-License-Identifier: BSD-3-Clause
#include "record/recorder.hpp"
#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <set>
#include "base/error.hpp"

namespace minitaw::record {
namespace fs = std::filesystem;

namespace {
void require(bool holds, const std::string& what) {
  if (!holds)
    throw std::runtime_error(what);
}

std::string session_path(int number) {
  return fmt::format("sessions/{:04}", number);
}

std::vector<Row> read_rows(hid_t file) {
  std::vector<Row> rows;
  for (const Column& column : columns()) {
    const auto add = [&](const auto& values) {
      if (column.field.name == columns().front().field.name)
        rows.resize(values.size());
      require(values.size() == rows.size(), column.field.name + " has no value for each run");
      for (std::size_t i = 0; i < rows.size(); ++i)
        rows[i].cells.emplace_back(values[i]);
    };
    std::visit(add, h5::read(file, "runs/" + column.field.name));
  }
  return rows;
}

std::vector<std::string> read_texts(hid_t file, const std::string& path) {
  const Values values = h5::read(file, path);
  require(std::holds_alternative<std::vector<std::string>>(values), path + " is no text");
  return std::get<std::vector<std::string>>(values);
}

/// The elements of /sessions/NNNN/`name`; none if the session has no such field.
std::vector<std::string> texts_of_session(hid_t file, int number, const std::string& name) {
  const std::string path = fmt::format("{}/{}", session_path(number), name);
  return h5::has(file, path) ? read_texts(file, path) : std::vector<std::string>();
}

/// The file that is to be replaced: not a link to it.
std::string resolved(const std::string& path) {
  if (path.empty() || fs::path(path).filename().empty())
    throw InputError(
        "\"{}\" is not the name of a result file; write for example -o results.h5", path);
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw InputError("{} cannot be written: there is no folder {}", path, folder.string());
  if (!fs::is_symlink(path, error))
    return path;
  const fs::path target = fs::canonical(path, error);
  if (error)
    throw InputError("{} cannot be read ({})", path, error.message());
  return target.string();
}

/// The file is replaced, not written: its own permissions would not hold that up.
void require_unprotected(const std::string& path) {
  constexpr fs::perms write =
      fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  std::error_code error;
  if ((fs::status(path, error).permissions() & write) == fs::perms::none)
    throw InputError("{} is write-protected; name another file with -o", path);
}

/// Throws InputError if others were asked for with another content of a deck's data file, which all
/// of its cases have.
void require_same_data(
    const std::string& path, const Asked& asked, const std::vector<Case>& cases) {
  if (cases.empty() || cases.front().data_sum.empty())
    return;
  const std::string& data = cases.front().data;
  const std::string& sum = cases.front().data_sum;
  for (const std::string& identity : asked)
    if (identity.find(fmt::format(" data={} ", data)) != std::string::npos &&
        !identity.ends_with(" data_sum=" + sum))
      throw InputError("{} has cases with another content of {}, whose checksum is {} now; name "
                       "another file with -o to measure all again",
          path,
          data,
          sum);
}
}  // namespace

Results read_results(hid_t file, const std::string& path) {
  try {
    h5::require_sound(file);
    Results found{.rows = read_rows(file)};
    for (int number = 0; h5::has(file, session_path(number)); ++number) {
      const std::string session = session_path(number);
      found.git_hashes.push_back(read_texts(file, session + "/git_hash").at(0));
      found.links.push_back(read_texts(file, session + "/links"));
      for (std::string& identity : texts_of_session(file, number, "cases"))
        found.asked.insert(std::move(identity));
      found.stopped = fmt::format("{}", fmt::join(texts_of_session(file, number, "stopped"), ""));
    }
    return found;
  } catch (const std::runtime_error& error) {
    std::string why = error.what();  // with names of the file, which may hold anything
    throw InputError("{} is damaged, of another version, or no result of miniTaw: {}; get the file "
                     "again from whoever measured it",
        path,
        printable(why, why.size()));
  }
}

Results read_results(const std::string& path) {
  return read_results(load_file(path, false), path);
}

Recorder::Recorder(
    const std::string& path, Provenance session, Remarks remarks, const std::vector<Case>& of_deck)
    : path_(resolved(path)),
      provenance_(std::move(session)),
      remarks_(std::move(remarks)),
      mark_(path_),
      file_(fs::exists(path_) ? load_file(path_) : new_file()) {
  const Elements& cases = provenance_.at("cases");
  const auto& asked = std::get<std::vector<std::string>>(cases.values);
  asked_.insert(asked.begin(), asked.end());
  const bool is_new = !fs::exists(path_);
  if (is_new)
    begin();
  if (is_new || resume(of_deck)) {
    write_session();
    write_judgement();
    try {
      save();
    } catch (const std::runtime_error& error) {
      throw InputError(error.what());  // nothing has run yet: the name asked for is at fault
    }
  }
  append_death(of_deck);
}

void Recorder::begin() {
  const h5::Id runs = h5::make_group(file_, "runs");
  std::vector<std::string> settings;
  const Row example = example_row();
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const Column& column = columns()[i];
    h5::make_column(runs, column.field, example.cells[i]);
    if (column.is_setting)
      settings.push_back(column.field.name);
  }
  h5::set_attribute(runs, "settings", Values(settings));
}

bool Recorder::resume(const std::vector<Case>& cases) {
  require_unprotected(path_);
  Results found = read_results(file_, path_);
  require_same_data(path_, found.asked, cases);
  rows_ = std::move(found.rows);
  const bool asks_for_more = !std::ranges::includes(found.asked, asked_);
  asked_.merge(found.asked);
  sessions_ = static_cast<int>(found.git_hashes.size());
  std::set<std::string> others(found.git_hashes.begin(), found.git_hashes.end());
  others.erase(std::string(build::git_hash));
  if (!others.empty())
    note_ = fmt::format("{} was measured by git hash {}, this program is {}; name another file "
                        "with -o to measure all again",
        path_,
        fmt::join(others, ", "),
        build::git_hash);
  return asks_for_more;
}

int Recorder::case_number(const std::string& identity) const {
  std::int64_t next = 0;
  for (const Row& row : rows_) {
    const std::int64_t number = row.integer("case");
    if (row.text("identity") == identity)
      return static_cast<int>(number);
    next = std::max(next, number + 1);
  }
  return static_cast<int>(next);
}

void Recorder::write_session() {
  if (written_)
    return;
  const h5::Id session = h5::make_group(file_, session_path(sessions_));
  for (const Field& field : session_fields())
    if (const auto data = provenance_.find(field.name); data != provenance_.end())
      h5::write(session, field, data->second);
  written_ = true;
}

void Recorder::write_judgement() {
  const h5::Id runs = h5::open_group(file_, "runs");
  h5::set_attribute(runs, "verdict", Cell(verdict(rows_, asked_, stopped_)));
  h5::set_attribute(runs, "figures_of_merit", Values(figures_of_merit(rows_)));
  for (const Remark& remark : remarks_)
    h5::set_attribute(runs, remark.attribute, Cell(remark.sentence(rows_)));
}

Row Recorder::append(const CaseResult& result, int repetition) {
  const int number = case_number(deck::identity(result.asked));
  Row row = make_row(result, {number, repetition, sessions_});
  const auto of_case = [&](const Row& known) { return known.integer("case") == number; };
  const auto last = std::ranges::find_if(rows_.rbegin(), rows_.rend(), of_case);
  if (result.status == Status::skipped && last != rows_.rend() &&
      last->text("verdict") == row.text("verdict"))
    return row;
  mark_.set("");
  write_session();
  const h5::Id runs = h5::open_group(file_, "runs");
  for (std::size_t i = 0; i < columns().size(); ++i)
    h5::append(runs, columns()[i].field.name, row.cells[i]);
  const h5::Id run = h5::make_group(runs, fmt::format("{:04}", rows_.size()));
  for (const Array& array : arrays())
    if (!array.of_timeline || result.timeline)
      h5::write(run, array.field, array.elements(result));
  rows_.push_back(row);
  write_judgement();
  save();
  return row;
}

void Recorder::append_death(const std::vector<Case>& cases) {
  const auto died = std::ranges::find(cases, mark_.left(), deck::identity);
  if (died == cases.end())
    return;
  CaseResult result;
  result.asked = *died;
  result.status = Status::error;
  result.reason = fmt::format("{}: killed, out of memory, or a node was lost", job_died);
  result.started = utc_now();
  int repetition = 0;
  for (const CaseRuns& known : by_case(rows_))
    if (known.last().text("identity") == mark_.left())
      repetition = known.next();
  append(result, repetition);
}

void Recorder::stop(const std::string& why) {
  write_session();
  const h5::Id session = h5::open_group(file_, session_path(sessions_));
  const Field& field = *std::ranges::find(session_fields(), "stopped", &Field::name);
  h5::write(session, field, text_data(why));
  stopped_ = why;
  write_judgement();
  save();
}

void Recorder::save() {
  replace_file(path_, bytes_of(file_));
}
}  // namespace minitaw::record

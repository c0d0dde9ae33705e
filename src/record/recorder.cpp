#include "record/recorder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "base/error.hpp"
#include "record/read.hpp"
#include "record/remaining.hpp"
#include "record/write.hpp"

namespace minitaw::record {

namespace {

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

/// Behind a link lies the file that is to be replaced, not the link.
std::string resolved(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

/// Names the case that is running.
std::string running_name(const std::string& path) { return path + ".running"; }

/// Of these git hashes those that are not `own`: "3f2a1b0c4d5e, 9c8b7a6d5e4f-dirty".
std::string others_of(const std::vector<std::string>& hashes, const std::string& own) {
  std::set<std::string> others(hashes.begin(), hashes.end());
  others.erase(own);
  return fmt::format("{}", fmt::join(others, ", "));
}

/// What the file has of a case comes before what is new.
template <class T>
void prepend(std::vector<T> earlier, std::vector<T>& later) {
  earlier.insert(earlier.end(), later.begin(), later.end());
  later = std::move(earlier);
}

void require_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (path.empty() || std::filesystem::path(path).filename().empty())
    throw InputError(
        fmt::format("\"{}\" is not the name of a result file; write for example -o results.h5", path));
  if (!folder.empty() && !std::filesystem::is_directory(folder, error))
    throw InputError(fmt::format("{} cannot be written: there is no folder {}", path, folder.string()));
}

/// The file is replaced, not written: its own permissions would not hold that up.
void require_unprotected(const std::string& path) {
  std::error_code error;
  using std::filesystem::perms;
  const perms all = std::filesystem::status(path, error).permissions();
  if (!error && (all & (perms::owner_write | perms::group_write | perms::others_write)) == perms::none)
    throw InputError(fmt::format("{} is write-protected; name another file with -o", path));
}

}  // namespace

Recorder::Recorder(const std::string& path, Provenance session)
    : path_(resolved(path)), session_(std::move(session)), state_(state_of(path_)),
      file_(is_there(path_) ? MemoryFile::load(path_) : MemoryFile::create()) {
  require_folder(path_);
  remove_stale_copy(path_);
  std::getline(std::ifstream(running_name(path_)), interrupted_);
  is_there(path_) ? resume() : begin();
}

void Recorder::begin() {
  write_provenance(file_.root(), "provenance", session_);
  {
    const h5::Id provenance = h5::open_group(file_.root(), "provenance");
    const h5::Id resumed = h5::make_group(provenance.get(), "resumed");
    const h5::Id cases = h5::make_group(file_.root(), "cases");
  }
  make_summary(file_.root());
  session_number_ = 0;
  try {
    save();
  } catch (const std::runtime_error& error) {
    throw InputError(error.what());  // nothing has run yet: the name that was asked for is at fault
  }
}

void Recorder::resume() {
  require_unprotected(path_);
  reading(path_, [&] { return h5::open_group(file_.root(), "cases"); });  // where append() writes
  rows_ = read_summary(file_, path_);
  const std::string others = others_of(read_git_hashes(file_, path_), session_.git_hash);
  if (!others.empty())
    notes_.push_back(
        fmt::format("{} was measured by git hash {}, this program is {}; name another file with -o to "
                    "measure anew",
                    path_, others, session_.git_hash));
  const auto kept = std::ranges::count_if(rows_, is_finished);
  notes_.push_back(fmt::format("{} holds {} case{}, {} of them finished; finished cases are not run again",
                               path_, rows_.size(), rows_.size() == 1 ? "" : "s", kept));
}

void Recorder::open_session() {
  if (session_number_ >= 0) return;
  const int number = count_sessions(file_);
  const h5::Id provenance = h5::open_group(file_.root(), "provenance");
  const h5::Id resumed = h5::open_group(provenance.get(), "resumed");
  write_provenance(resumed.get(), numbered(number), session_);
  session_number_ = number;
}

h5::Id Recorder::session_group() const {
  h5::Id first = h5::open_group(file_.root(), "provenance");
  if (session_number_ == 0) return first;
  const h5::Id resumed = h5::open_group(first.get(), "resumed");
  return h5::open_group(resumed.get(), numbered(session_number_));
}

void Recorder::log(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) lines_.push_back(line);
}

void Recorder::write_log() {
  const h5::Id group = session_group();
  for (; written_lines_ < lines_.size(); ++written_lines_)
    write_log_line(group.get(), lines_[written_lines_], written_lines_);
}

void Recorder::finish() {
  std::error_code error;
  std::filesystem::remove(running_name(path_), error);
  if (session_number_ < 0) return;
  write_log();
  save();
}

void Recorder::begin_case(const deck::Case& c) const {
  std::ofstream(running_name(path_)) << deck::identity(c) << '\n';
}

void Recorder::join(const Row& row, CaseResult& result) const {
  StoredCase stored = read_case(file_, path_, row);
  prepend(std::move(stored.seconds), result.seconds);
  prepend(std::move(stored.repetition), result.repetition);
  prepend(std::move(stored.position), result.position);
  // Counters of some repetitions only would be taken for those of all.
  if (stored.device_samples.empty()) result.counters = stored.counters;
  prepend(std::move(stored.device_samples), result.device_samples);
  prepend(std::move(stored.energy), result.energy);
  if (result.device_samples.size() != result.seconds.size()) result.device_samples.clear();
  if (result.energy.size() != result.position.size()) result.energy.clear();
}

std::size_t Recorder::index_of(const std::string& identity) const {
  const auto at =
      std::ranges::find_if(rows_, [&](const Row& row) { return row.text("identity") == identity; });
  return static_cast<std::size_t>(at - rows_.begin());
}

Row Recorder::append(CaseResult result, int repetition) {
  open_session();
  const std::size_t index = index_of(deck::identity(result.settings));
  std::ranges::fill(result.repetition, repetition);
  if (repetition > 0 && index < rows_.size()) join(rows_[index], result);
  const int number = static_cast<int>(index);
  const Row row = make_row(result, number, session_number_);
  {
    const h5::Id cases = h5::open_group(file_.root(), "cases");
    if (h5::exists(cases.get(), numbered(number)))
      h5::check(H5Ldelete(cases.get(), numbered(number).c_str(), H5P_DEFAULT), "replace a case");
    write_case(cases.get(), result, number, session_number_);
  }
  write_row(file_.root(), row, index);
  write_log();
  save();
  if (index < rows_.size()) rows_[index] = row;
  else rows_.push_back(row);
  return row;
}

void Recorder::save() { state_ = replace_file(path_, file_.bytes(), state_); }

}  // namespace minitaw::record

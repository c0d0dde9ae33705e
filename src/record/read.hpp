#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "record/file.hpp"
#include "record/table.hpp"

namespace minitaw::record {

/// What `read` returns. What HDF5, or a reader, has to complain about is said of the file: InputError
/// "PATH is damaged: ...". An InputError of `read` says enough and passes.
template <class Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const InputError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw InputError(fmt::format("{} is damaged: {}", path, error.what()));
  }
}

/// The summary of an open file; `path` is for messages. Throws InputError if the file is damaged.
[[nodiscard]] std::vector<Row> read_summary(const MemoryFile& file, const std::string& path);
/// The summary of a result file. Throws InputError as MemoryFile::load() does.
[[nodiscard]] std::vector<Row> read_rows(const std::string& path);

/// What it takes to add repetitions to a case.
struct StoredCase {
  Row row;                                   ///< of the summary
  std::vector<std::vector<double>> seconds;  ///< [sample][rank], s, all repetitions; a sample is the maximum
  std::vector<int> repetition;               ///< [sample], from 0
  std::vector<int> position;                 ///< [repetition]: how many runs came before it in its session
  std::vector<double> losses;                ///< nat/token, of every step of a repetition, warm-up included
  std::vector<std::vector<DeviceSample>> device_samples;  ///< [sample][rank]; empty: unavailable
  std::vector<std::vector<double>> energy;                ///< [repetition][rank], J; empty: unavailable
  std::string counters;                                   ///< what told the last two, or why nothing did
};
/// The case of this row of the summary; `path` is for messages. Throws InputError if the file is damaged.
[[nodiscard]] StoredCase read_case(const MemoryFile& file, const std::string& path, const Row& row);

/// How many sessions have written to the file.
[[nodiscard]] int count_sessions(const MemoryFile& file);
/// The git hash that each session was built from, and the shaped links that it had.
[[nodiscard]] std::vector<std::string> read_git_hashes(const MemoryFile& file, const std::string& path);
[[nodiscard]] std::vector<std::vector<std::string>> read_links(const MemoryFile& file,
                                                               const std::string& path);

}  // namespace minitaw::record

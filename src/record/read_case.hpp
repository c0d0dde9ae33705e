#pragma once

#include <string>
#include <vector>

#include "record/columns.hpp"
#include "record/image.hpp"

namespace minitaw::record {

/// A case as its file holds it: what it takes to compare it with another one, or to go on with it.
struct StoredCase {
  Row row;                                   ///< of the summary
  std::vector<std::vector<double>> seconds;  ///< [sample][rank], s, all repetitions; a sample is the maximum
  std::vector<int> repetition;               ///< [sample], from 0
  std::vector<int> position;   ///< [repetition]: how many runs came before it in its session; -1: not known
  std::vector<double> losses;  ///< nat/token, of every step of a repetition, warm-up included
  std::vector<std::vector<DeviceSample>> device_samples;  ///< [sample][rank]; empty: unavailable
  std::vector<std::vector<double>> energy;                ///< [repetition][rank], J; empty: unavailable
  std::string counters;                                   ///< what told the last two, or why nothing did
};

/// The case of this row of the summary; `path` is for messages. Files before schema 4 have one repetition and
/// no counters. Throws InputError if the file is damaged.
[[nodiscard]] StoredCase read_case(const Image& image, const std::string& path, const Row& row);

/// All cases of a file, in its order. Throws InputError as Image::load() and read_case() do.
[[nodiscard]] std::vector<StoredCase> read_cases(const Image& image, const std::string& path);

}  // namespace minitaw::record

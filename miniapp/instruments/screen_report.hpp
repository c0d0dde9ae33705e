// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "instruments/screen/screening.hpp"
#include "job.hpp"
#include "record/recorder.hpp"

/// What rank 0 keeps and prints of a screening.
namespace minitaw::app {
struct Screening {
  const screen::Machine& machine;
  std::vector<std::string> nodes{};          ///< their names
  std::string settings{};                    ///< what was measured
  std::vector<screen::Measured> measured{};  ///< by quantity
  screen::Judgement judgement{};             ///< of all rounds; empty before the last one
  screen::Verdict verdict{};                 ///< of the judgement

  /// That have been measured.
  [[nodiscard]] int rounds() const { return std::ssize(measured.front().rounds); }
};

// The group /screen of a result file.

/// Adds the rounds that the file has. Throws InputError if these are of something else.
void read_rounds(const record::Recorder& file, const std::string& path, Screening& screening);
void write(record::Recorder& file, const Screening& screening);

/// Of each quantity: lowest, median and highest of all rounds, the smallest loss that would have
/// been named, and what is expected.
[[nodiscard]] std::string table_text(const Screening& screening);
/// The culprits with their evidence, and the verdict.
[[nodiscard]] std::string findings_text(const Screening& screening, const MpiJob& mpi);
[[nodiscard]] Json to_json(const Screening& screening);
}  // namespace minitaw::app

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
  screen::Judgement judgement{};             ///< of the rounds that have been measured
  screen::Words words{};                     ///< empty before the last round

  /// That have been measured.
  [[nodiscard]] int rounds() const { return std::ssize(measured.front().rounds); }
};

/// The group /screen of a result file.
class ScreenFile {
public:
  ScreenFile(const std::string& path, const record::Provenance& provenance)
      : path_(path),
        recorder_(path, provenance) {}

  /// Adds the rounds that the file has. Throws InputError if these are of something else.
  void read(Screening& screening);
  void write(const Screening& screening);

private:
  std::string path_;
  record::Recorder recorder_;
};

/// Of each quantity: lowest, median and highest of all rounds, the smallest loss that would have
/// been named, and what is known.
[[nodiscard]] std::string table_text(const Screening& screening);
/// The culprits with their evidence, and the words.
[[nodiscard]] std::string findings_text(const Screening& screening, const MpiJob& mpi);
[[nodiscard]] Json to_json(const Screening& screening);
}  // namespace minitaw::app

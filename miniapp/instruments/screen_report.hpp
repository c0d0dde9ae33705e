// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "instruments/screen/screening.hpp"
#include "job.hpp"
#include "record/recorder.hpp"

/// What rank 0 keeps and prints of a screening.
namespace minitaw::app {
struct Screening {
  const screen::Machine& machine;
  std::vector<std::string> nodes{};  ///< their names
  std::string settings;              ///< what was measured
  std::vector<screen::Measured> measured;

  /// That have been measured.
  [[nodiscard]] int rounds() const { return static_cast<int>(measured.front().rounds.size()); }
};

/// The group /screen of a result file.
class ScreenFile {
public:
  ScreenFile(const std::string& path, const record::Provenance& provenance)
      : path_(path),
        recorder_(path, provenance) {}

  /// Adds the rounds that the file has. Throws InputError if these are of something else.
  void read(Screening& screening);
  void write(
      const Screening& screening, const screen::Judgement& judgement, const screen::Words& words);

private:
  std::string path_;
  record::Recorder recorder_;
};

/// Of each quantity: lowest, median and highest of all rounds, the smallest loss that would have
/// been named, and what is known.
[[nodiscard]] std::string table_text(
    const Screening& screening, const screen::Judgement& judgement);
/// The culprits with their evidence, and the words.
[[nodiscard]] std::string findings_text(const Screening& screening,
    const std::vector<screen::Culprit>& culprits,
    const screen::Words& words,
    const MpiJob& mpi);
[[nodiscard]] Json screening_json(
    const Screening& screening, const screen::Judgement& judgement, const screen::Words& words);
}  // namespace minitaw::app

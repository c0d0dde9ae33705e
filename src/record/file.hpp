// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstddef>
#include <istream>
#include <span>
#include <thread>
#include "record/hdf5.hpp"
#include "record/schema.hpp"

namespace minitaw::record {
using Bytes = std::span<const std::byte>;

/// FILE.h5.running, beside a result file while a program writes that: it names the program, which
/// keeps others away, and the case that runs.
class RunningMark {
public:
  /// Throws InputError if another program has the file, or may have it.
  explicit RunningMark(const std::string& path);

  ~RunningMark() { remove(); }

  /// Names the case that runs; empty: none. Throws InputError if another program has taken the
  /// file.
  void set(const std::string& identity);
  /// This program writes no more.
  void remove();

  /// Returns the case that a program which has died was running; empty: none.
  const std::string& left() const { return left_; }

private:
  void take();

  std::string path_, name_;
  std::string mine_;  ///< the first line of the mark
  std::string left_;
  std::jthread refresh_;  ///< keeps the mark young, for programs on other hosts
};

/// Replaces the file by `bytes`: a copy is written, forced to disk and renamed, so that the path
/// always names the old or the new content. Throws std::runtime_error if the disk is full or the
/// folder is read-only; the old file stays.
void replace_file(const std::string& path, Bytes bytes);
/// Length of the seal in front of the HDF5 file: its smallest user block, which all its readers
/// skip.
inline constexpr std::size_t seal_size = 512;
/// The seal of an HDF5 file: a line with its length and CRC-32 (zlib's), then spaces to
/// `seal_size`, and a newline.
std::string make_seal(Bytes image);
/// The HDF5 file behind the seal. Throws InputError if it is not the one that was sealed, or of
/// another schema. Without `keeps` it is only checked, and empty.
std::string unseal(std::istream& file, const std::string& path, bool keeps = true);

// Result files in memory: a run that is killed inside HDF5 would leave a file that cannot be
// opened.

/// A new one, with the attributes of the format and nothing else.
h5::Id new_file();
/// The content of a file at one moment; `to_change`: in memory, else a file on disk stays there.
/// Throws InputError if it cannot be read, is damaged or no such result.
h5::Id load_file(const std::string& path, bool to_change = true);
/// The bytes of the file as they are on disk: the seal, then the HDF5 file.
std::vector<std::byte> bytes_of(hid_t file);
}  // namespace minitaw::record

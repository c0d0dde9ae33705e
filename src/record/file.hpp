// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include "record/hdf5.hpp"

namespace minitaw::record {
using Bytes = std::span<const std::byte>;
/// Tells one state of a file from another: device, inode, size, seconds and nanoseconds of the last
/// change.
using FileState = std::array<std::int64_t, 5>;
[[nodiscard]] std::optional<FileState> state_of(const std::string& path);
/// The name of the copy that replaces `path`, beside it.
[[nodiscard]] std::string copy_name(const std::string& path);

/// Replaces the file by `bytes`, if it is still in the state `expected` (nothing: it is not there):
/// a copy is written, forced to disk and renamed, so that the path always names the old or the new
/// content. Returns the new state. Throws std::runtime_error if the disk is full, the folder is
/// read-only, or another program writes it; the old file stays.
FileState replace_file(
    const std::string& path, Bytes bytes, const std::optional<FileState>& expected);
/// Removes what a killed run may have left beside the file.
void remove_stale_copy(const std::string& path);
/// Version of the layout in docs/results.md. Programs read and add to files of their own version.
inline constexpr std::int64_t schema_version = 4;
/// Length of the seal in front of the HDF5 file: its smallest user block, which all its readers
/// skip.
inline constexpr std::size_t seal_size = 512;
/// The seal of an HDF5 file: a line with its length and CRC-32 (zlib's), then spaces to
/// `seal_size`, and a newline.
[[nodiscard]] std::string make_seal(std::int64_t schema, Bytes image);
/// The HDF5 file after its seal, a part of `file`. Throws InputError if it is another one, or of
/// another schema.
[[nodiscard]] Bytes unseal(Bytes file, const std::string& path);

// Result files in memory: a run that is killed inside HDF5 would leave a file that cannot be
// opened.

/// A new one, with the attributes of the format and nothing else.
[[nodiscard]] h5::Id new_file();
/// The content of a file at one moment. Throws InputError if it cannot be read, is damaged or no
/// such result.
[[nodiscard]] h5::Id load_file(const std::string& path);
/// The bytes of the file as they are on disk: the seal, then the HDF5 file.
[[nodiscard]] std::vector<std::byte> bytes_of(hid_t file);
}  // namespace minitaw::record

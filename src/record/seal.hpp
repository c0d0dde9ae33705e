#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace minitaw::record {

using Bytes = std::span<const std::byte>;

/// Length of the seal in front of the HDF5 file: its smallest user block, which all its readers skip.
inline constexpr std::size_t seal_size = 512;
/// Files of older schemas have no seal.
inline constexpr std::int64_t first_sealed_schema = 4;

/// The seal of an HDF5 file: a line that `head -1` shows, with its length and its CRC-32 (zlib's), padded
/// with spaces to `seal_size` characters, the last one a newline.
[[nodiscard]] std::string make_seal(std::int64_t schema, Bytes image);

/// Whether a file begins with the words that all seals begin with, those of later versions too.
[[nodiscard]] bool has_seal(Bytes file);

struct Unsealed {
  std::int64_t schema;  ///< that the seal speaks of
  Bytes image;          ///< the HDF5 file, a part of the bytes that were given
};
/// Checks the seal of a file that has one. Throws InputError if the file is not what was written, or of a
/// schema that is newer than `newest`; `path` is for messages.
[[nodiscard]] Unsealed unseal(Bytes file, std::int64_t newest, const std::string& path);

/// The sentence about a file of a newer schema.
[[nodiscard]] std::string too_new(const std::string& path, std::int64_t schema, std::int64_t newest);

}  // namespace minitaw::record

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace minitaw::record {

/// Tells one state of a file from another.
struct FileState {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t seconds = 0, nanoseconds = 0;
  friend bool operator==(const FileState&, const FileState&) = default;
};
/// Nothing if there is no such file.
[[nodiscard]] std::optional<FileState> state_of(const std::string& path);

/// The whole file, as it was at one moment: another program may replace it meanwhile. Throws InputError if it
/// cannot be read.
[[nodiscard]] std::vector<std::byte> read_file(const std::string& path);

/// The name of the copy that replaces `path`, beside it.
[[nodiscard]] std::string copy_name(const std::string& path);

/// Puts `bytes` in place of the file: a copy beside it is written, forced to disk and renamed, so that at
/// every moment the path names either the old or the new content. Returns the state of the new file. Throws
/// std::runtime_error if the disk is full, the folder cannot be written or another program is at it; the old
/// file is then as it was and the copy is gone.
FileState replace_file(const std::string& path, std::span<const std::byte> bytes);
/// The same, if the file is still in the state `expected` (nothing: not there), and an error if not.
FileState replace_file(const std::string& path, std::span<const std::byte> bytes,
                       const std::optional<FileState>& expected);

/// Removes what a killed run may have left beside the file.
void remove_stale_copy(const std::string& path);

}  // namespace minitaw::record

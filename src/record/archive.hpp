#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minitaw::record {

/// One file of an archive.
struct Member {
  std::string name;     ///< relative, parts joined by "/"
  std::string content;  ///< bytes
};

/// What an archive may hold at most, made or read: an archive of a few kilobytes can claim to hold terabytes.
inline constexpr std::size_t most_archive_bytes = std::size_t{1} << 30;
inline constexpr std::size_t most_archive_members = 1000;

/// Why these functions throw InputError whatever they are given; empty: they work.
[[nodiscard]] std::string why_no_archives();

/// A tar.gz of the members. The same members, in any order, give the same bytes: sorted by name, the same
/// time, owner and mode for all. Throws InputError if they are more, or larger, than an archive may hold.
[[nodiscard]] std::string pack(std::vector<Member> members);

/// The files of a tar.gz, in its order; `path` is for messages. Throws InputError if it is damaged, holds
/// anything but files (folders are passed over), a name twice, a name that leads out of a folder, more than
/// `most` bytes or more than most_archive_members files and folders.
[[nodiscard]] std::vector<Member> unpack(std::string_view archive, const std::string& path,
                                         std::size_t most = most_archive_bytes);

/// Whether a file of this name stays in the folder in which an archive is unpacked, and can stand in a line
/// of SHA256SUMS: at most 200 printable ASCII characters, relative, no "." or ".." among its parts, no
/// backslash.
[[nodiscard]] bool is_safe_name(std::string_view name);

/// 64 hexadecimal digits.
[[nodiscard]] std::string sha256(std::string_view content);

}  // namespace minitaw::record

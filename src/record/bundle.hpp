#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "record/archive.hpp"
#include "record/columns.hpp"
#include "record/provenance.hpp"

/// What is handed in: a result file, what can be read from it without a program, and what the user adds, in
/// one archive (docs/bundle.md).
namespace minitaw::record {

/// All files of the bundle lie in this folder of the archive.
inline constexpr std::string_view bundle_folder = "bundle/";
inline constexpr std::string_view sums_name = "SHA256SUMS";

/// The archive, as bytes: the same input gives the same. `added` are paths of files, which go to added/ under
/// their own names. Throws InputError if `path` is no result or damaged, if an added file cannot be read, or
/// if two have one name.
[[nodiscard]] std::string make_bundle(const std::string& path, const std::vector<std::string>& added);

/// What a bundle says.
struct Bundle {
  std::vector<Row> rows;             ///< summary of the record
  std::vector<Provenance> sessions;  ///< of the record
  std::vector<std::string> names;    ///< of all files, sorted
};

/// Unpacks in memory, compares every file with SHA256SUMS and reads the record. Throws InputError if the
/// archive is damaged, a file was changed, is missing or is not listed, or the record cannot be read.
[[nodiscard]] Bundle read_bundle(const std::string& path);

/// A file that a bundle may hold, or be. Throws InputError if it cannot be read or is larger than an archive
/// may.
[[nodiscard]] std::string read_bounded(const std::string& path);
[[nodiscard]] std::vector<std::byte> bytes_of(std::string_view text);

/// A line for each member as `sha256sum` prints it, sorted by name.
[[nodiscard]] std::string sums_text(const std::vector<Member>& members);

/// Versions, command, ranks and recorded environment of every session.
[[nodiscard]] std::string environment_text(const std::vector<Provenance>& sessions);
/// What every session has printed, line by line.
[[nodiscard]] std::string log_text(const std::vector<Provenance>& sessions,
                                   const std::vector<std::vector<std::string>>& logs);
/// What is what, verdict, figure of merit, version.
[[nodiscard]] std::string readme_text(const std::vector<Row>& rows, const std::vector<Provenance>& sessions);

}  // namespace minitaw::record

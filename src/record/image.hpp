#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "record/hdf5.hpp"

namespace minitaw::record {

/// Version of the layout in docs/results.md. Readers of version n read all files of versions 1 .. n.
inline constexpr std::int64_t schema_version = 4;

/// A result file in memory. HDF5 never writes to the disk itself: a run that is killed inside HDF5 would
/// leave a file that nobody can open.
class Image {
public:
  /// A new one, with the attributes of the format and nothing else.
  static Image create();
  /// The content of a file. Throws InputError if it is not a miniTaw result, damaged, or of a newer schema.
  /// A child process reads all of it first (probe.hpp): a seal tells damage, not what somebody has made up.
  static Image load(const std::string& path);
  /// The same of bytes that have been read already; `path` is for messages.
  static Image of(const std::vector<std::byte>& content, const std::string& path);
  /// The same for a program that wants to add to the file, and may have started MPI: no child, and a file
  /// without a seal is refused, whatever it is.
  static Image load_sealed(const std::string& path);

  [[nodiscard]] hid_t root() const { return file_.get(); }
  /// Version of the layout that the file was written in.
  [[nodiscard]] std::int64_t schema() const;
  /// The bytes of the file as they are on disk: the seal, then the HDF5 file.
  [[nodiscard]] std::vector<std::byte> bytes() const;

private:
  explicit Image(h5::Id file) : file_(std::move(file)) {}
  h5::Id file_;
};

}  // namespace minitaw::record

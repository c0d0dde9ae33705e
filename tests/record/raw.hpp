#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "record/file.hpp"

namespace minitaw::record {

/// The HDF5 file of an image, as HDF5 gives it out: without a seal.
inline std::vector<std::byte> raw_bytes(const MemoryFile& image) {
  h5::check(H5Fflush(image.root(), H5F_SCOPE_LOCAL), "flush");
  std::vector<std::byte> bytes(static_cast<std::size_t>(H5Fget_file_image(image.root(), nullptr, 0)));
  if (H5Fget_file_image(image.root(), bytes.data(), bytes.size()) < 0) throw std::runtime_error("no image");
  return bytes;
}

/// With a seal of that schema, true or not.
inline std::vector<std::byte> sealed(const std::vector<std::byte>& raw, std::int64_t schema) {
  const std::string seal = make_seal(schema, raw);
  std::vector<std::byte> bytes(seal.size() + raw.size());
  std::ranges::copy(raw, std::ranges::copy(std::as_bytes(std::span(seal)), bytes.begin()).out);
  return bytes;
}

inline void set_schema(const MemoryFile& image, std::int64_t schema) {
  if (H5Aexists(image.root(), "schema") > 0) h5::check(H5Adelete(image.root(), "schema"), "delete");
  h5::write_attribute(image.root(), "schema", schema);
}

}  // namespace minitaw::record

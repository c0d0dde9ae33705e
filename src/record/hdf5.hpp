// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <hdf5.h>
#include <string>
#include <utility>
#include "case/dataset.hpp"

/// HDF5 as miniTaw needs it. Every failure throws std::runtime_error. A path begins at the group in
/// front of it.
namespace minitaw::record::h5 {
class Id {
public:
  /// `what` names the call in the message if the identifier is invalid.
  Id(hid_t id, herr_t (*close)(hid_t), const std::string& what);

  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

  ~Id();

  operator hid_t() const { return id_; }

private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void check(herr_t status, const std::string& what);

/// Writes a dataset and the groups above it. One that `grows`, of one axis, may be written again.
void write(hid_t parent, const Dataset& dataset, bool grows = false);
/// One element, or a list.
void write_attribute(
    hid_t object, const std::string& name, const Values& values, bool list = false);
[[nodiscard]] Id make_group(hid_t parent, const std::string& path);
[[nodiscard]] Id open_group(hid_t parent, const std::string& path);

[[nodiscard]] bool has(hid_t parent, const std::string& path);
/// Removes a group, if there is one.
void remove(hid_t parent, const std::string& path);

template <class T>
struct Array {
  std::vector<hsize_t> shape;
  std::vector<T> values;  ///< row-major
};
/// A whole dataset; throws unless it has so many dimensions and this type, one of Values, and its
/// values lie in the file itself without filters. Texts have no control characters: these could
/// command the terminal on which they are shown.
template <class T>
[[nodiscard]] Array<T> read(hid_t parent, const std::string& path, std::size_t dimensions);
}  // namespace minitaw::record::h5

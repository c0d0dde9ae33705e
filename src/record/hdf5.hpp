// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <hdf5.h>
#include <utility>
#include "record/field.hpp"

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

void require_success(herr_t status, const std::string& what);

/// Writes a dataset and the groups above it.
void write(hid_t parent, const Field& field, const Elements& elements);
/// Makes a dataset of one axis and no elements for values of the type of `example`.
void make_column(hid_t parent, const Field& field, const Cell& example);
/// Adds an element to a column.
void append(hid_t parent, const std::string& path, const Cell& value);
/// Replaces an attribute: a list, or one element.
void set_attribute(hid_t object, const std::string& name, const Values& list);
void set_attribute(hid_t object, const std::string& name, const Cell& one);
/// Its members keep the order in which they are made.
Id make_group(hid_t parent, const std::string& path);
Id open_group(hid_t parent, const std::string& path);
bool has(hid_t parent, const std::string& path);
/// All values of a dataset. Texts have no control characters: these could command the terminal on
/// which they are shown.
Values read(hid_t parent, const std::string& path);
/// Looks at all objects of a file and reads no value: none lies in another file, is filtered, or
/// claims more values than the file has bytes.
void require_sound(hid_t file);
}  // namespace minitaw::record::h5

#include "record/walk.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "record/hdf5.hpp"

namespace minitaw::record {

namespace {

constexpr int deepest = 16;  ///< groups in groups; the format has 5

/// Counts down the objects that a file of its size has room for: a group may be its own member.
void walk(hid_t group, hsize_t& left, int depth);

bool is_text(hid_t type) { return H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) > 0; }
bool is_number(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  return (kind == H5T_INTEGER || kind == H5T_FLOAT) && H5Tget_size(type) <= 8;
}

/// Reads all `count` elements through `read`, if they are texts or numbers.
template <class Read>
void read_elements(hid_t type, hsize_t count, const std::string& name, const Read& read) {
  if (is_text(type)) {
    (void)h5::read_texts(count, name, read);
  } else if (is_number(type)) {
    std::vector<double> values(count);
    if (count > 0) h5::check(read(H5T_NATIVE_DOUBLE, static_cast<void*>(values.data())), "read " + name);
  }
}

void read_dataset(hid_t dataset, const std::string& name) {
  const h5::Id type(H5Dget_type(dataset), H5Tclose, "read the type of " + name);
  const h5::Id space(H5Dget_space(dataset), H5Sclose, "read the shape of " + name);
  const hsize_t count = h5::fitting(dataset, space.get(), name);
  read_elements(type.get(), count, name, [&](hid_t memory, void* to) {
    return H5Dread(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
  });
}

void read_attribute(hid_t object, const std::string& name) {
  const h5::Id attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "open attribute " + name);
  const h5::Id type(H5Aget_type(attribute.get()), H5Tclose, "read the type of attribute " + name);
  const h5::Id space(H5Aget_space(attribute.get()), H5Sclose, "read the shape of attribute " + name);
  const hsize_t count = h5::fitting(object, space.get(), name);
  read_elements(type.get(), count, name,
                [&](hid_t memory, void* to) { return H5Aread(attribute.get(), memory, to); });
}

/// Collects the names that HDF5 goes through.
template <class Info>
herr_t collect(hid_t, const char* name, const Info*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

void read_attributes(hid_t object) {
  std::vector<std::string> names;
  h5::check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect<H5A_info_t>, &names),
            "list the attributes");
  for (const std::string& name : names) read_attribute(object, name);
}

void visit(hid_t group, const std::string& name, hsize_t& left, int depth) {
  if (depth == deepest || left-- == 0) throw std::runtime_error("groups without end");
  const h5::Id object = h5::open_object(group, name);
  read_attributes(object.get());
  if (H5Iget_type(object.get()) == H5I_GROUP) walk(object.get(), left, depth + 1);
  if (H5Iget_type(object.get()) == H5I_DATASET) read_dataset(object.get(), name);
}

void walk(hid_t group, hsize_t& left, int depth) {
  std::vector<std::string> names;
  h5::check(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect<H5L_info_t>, &names),
            "list a group");
  for (const std::string& name : names) visit(group, name, left, depth);
}

}  // namespace

void read_everything(hid_t group) {
  hsize_t left = h5::size_of_file(group) / 16;
  read_attributes(group);
  walk(group, left, 0);
}

}  // namespace minitaw::record

// SPDX-License-Identifier: BSD-3-Clause
#include "record/hdf5.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <type_traits>

namespace minitaw::record::h5 {
namespace {
template <class T> constexpr bool is_text = std::is_same_v<T, std::string>;

template <class T> Id type_of() {
  Id type(H5Tcopy(is_text<T>                        ? H5T_C_S1
                  : std::is_same_v<T, double>       ? H5T_NATIVE_DOUBLE
                  : std::is_same_v<T, std::int64_t> ? H5T_NATIVE_INT64
                                                    : H5T_NATIVE_UINT64),
      H5Tclose, "copy a type");
  if (is_text<T>) {
    check(H5Tset_size(type, H5T_VARIABLE), "create a text type");
    check(H5Tset_cset(type, H5T_CSET_UTF8), "create a text type");
  }
  return type;
}

/// Row-major; {}: a scalar.
Id space_of(const std::vector<hsize_t>& shape, bool grows = false) {
  const std::vector<hsize_t> unlimited(shape.size(), H5S_UNLIMITED);
  return {shape.empty()
              ? H5Screate(H5S_SCALAR)
              : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), grows ? unlimited.data() : nullptr),
      H5Sclose, "create a data space"};
}

Id open_dataset(hid_t parent, const std::string& path) {
  return {H5Dopen2(parent, path.c_str(), H5P_DEFAULT), H5Dclose, "open dataset " + path};
}

Id shape_of(hid_t dataset, const std::string& path, std::size_t dimensions) {
  Id space(H5Dget_space(dataset), H5Sclose, "read the shape of " + path);
  if (const int found = H5Sget_simple_extent_ndims(space); found != static_cast<int>(dimensions))
    throw std::runtime_error(fmt::format("HDF5: {} has {} dimensions, not {}", path, found, dimensions));
  return space;
}

/// Calls `use` with the type of the values in memory and a pointer to them, as HDF5 wants texts.
template <class Use> void with_data(const Values& values, const Use& use) {
  std::visit(
      [&]<class T>(const std::vector<T>& list) {
        if constexpr (is_text<T>) {
          std::vector<const char*> texts(list.size());
          std::ranges::transform(list, texts.begin(), &std::string::c_str);
          use(type_of<T>(), static_cast<const void*>(texts.data()));
        } else {
          use(type_of<T>(), static_cast<const void*>(list.data()));
        }
      },
      values);
}
}  // namespace

Id::Id(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
  if (id < 0) throw std::runtime_error("HDF5 cannot " + what);
}

Id::~Id() {
  if (id_ >= 0) close_(id_);
}

void check(herr_t status, const std::string& what) {
  if (status < 0) throw std::runtime_error("HDF5 cannot " + what);
}

Values one(const Cell& cell) {
  return std::visit([](const auto& value) -> Values { return std::vector{value}; }, cell);
}

void write(hid_t parent, const Dataset& d, bool grows, hsize_t first) {
  const auto size = std::accumulate(d.shape.begin(), d.shape.end(), std::size_t{1}, std::multiplies<>());
  if (const auto given = std::visit([](const auto& list) { return list.size(); }, d.values); given != size)
    throw std::runtime_error(fmt::format("{}: {} values for a shape of {}", d.path, given, size));
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "create link options");
  check(H5Pset_create_intermediate_group(links, 1), "set link options");
  const Id options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "create dataset options");
  constexpr hsize_t chunk = 64;
  if (grows) check(H5Pset_chunk(options, 1, &chunk), "set the chunk size");
  const Id space = space_of(d.shape, grows);
  const bool is_there = grows && H5Lexists(parent, d.path.c_str(), H5P_DEFAULT) > 0;
  with_data(d.values, [&](hid_t type, const void* data) {
    const Id dataset = is_there ? open_dataset(parent, d.path)
                                : Id(H5Dcreate2(parent, d.path.c_str(), type, space, links, options, H5P_DEFAULT),
                                      H5Dclose, "create dataset " + d.path);
    if (is_there) check(H5Dset_extent(dataset, d.shape.data()), "grow " + d.path);
    if (first > 0 && first < size) {
      const hsize_t count = size - first;
      check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, nullptr, &count, nullptr), "select " + d.path);
    }
    if (first < size) check(H5Dwrite(dataset, type, space, space, H5P_DEFAULT, data), "write " + d.path);
    if (is_there) return;
    write_attribute(dataset, "units", one(d.units));
    if (!d.axes.empty()) write_attribute(dataset, "axes", one(d.axes));
    if (!d.labels.empty()) write_attribute(dataset, "labels", d.labels, true);
    if (!d.codes.empty()) write_attribute(dataset, "codes", d.codes, true);
  });
}

void write_attribute(hid_t object, const std::string& name, const Values& values, bool list) {
  const hsize_t size = std::visit([](const auto& all) { return all.size(); }, values);
  const Id space = space_of(list ? std::vector{size} : std::vector<hsize_t>());
  if (H5Aexists(object, name.c_str()) > 0) check(H5Adelete(object, name.c_str()), "replace attribute " + name);
  with_data(values, [&](hid_t type, const void* data) {
    const Id attribute(
        H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "create attribute " + name);
    if (size > 0) check(H5Awrite(attribute, type, data), "write attribute " + name);
  });
}

Id make_group(hid_t parent, const std::string& path) {
  return {H5Gcreate2(parent, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create group " + path};
}

Id open_group(hid_t parent, const std::string& path) {
  return {H5Gopen2(parent, path.c_str(), H5P_DEFAULT), H5Gclose, "open group " + path};
}

template <class T> Array<T> read(hid_t parent, const std::string& path, std::size_t dimensions) {
  const Id dataset = open_dataset(parent, path);
  const Id space = shape_of(dataset, path, dimensions);
  Array<T> array{std::vector<hsize_t>(dimensions), {}};
  check(H5Sget_simple_extent_dims(space, array.shape.data(), nullptr), "read the shape of " + path);
  const Id stored(H5Dget_type(dataset), H5Tclose, "read the type of " + path), type = type_of<T>();
  if (H5Tget_class(stored) != H5Tget_class(type) ||
      (is_text<T> ? H5Tis_variable_str(stored) <= 0 : H5Tget_size(stored) > sizeof(double)))
    throw std::runtime_error(fmt::format("HDF5: {} has an unexpected type", path));
  const auto count = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space));
  if (count == 0) return array;
  if constexpr (is_text<T>) {
    std::vector<char*> texts(count, nullptr);
    check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()), "read " + path);
    for (const char* text : texts) array.values.emplace_back(text == nullptr ? "" : text);
    check(H5Dvlen_reclaim(type, space, H5P_DEFAULT, texts.data()), "read " + path);
  } else {
    array.values.resize(count);
    check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.data()), "read " + path);
  }
  return array;
}

template Array<std::int64_t> read(hid_t, const std::string&, std::size_t);
template Array<std::uint64_t> read(hid_t, const std::string&, std::size_t);
template Array<double> read(hid_t, const std::string&, std::size_t);
template Array<std::string> read(hid_t, const std::string&, std::size_t);
}  // namespace minitaw::record::h5

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
template <class T>
constexpr bool is_text = std::is_same_v<T, std::string>;

template <class T>
Id type_of() {
  Id type(H5Tcopy(is_text<T>                  ? H5T_C_S1
                  : std::is_same_v<T, double> ? H5T_NATIVE_DOUBLE
                                              : H5T_NATIVE_INT64),
      H5Tclose,
      "copy a type");
  if (is_text<T>) {
    check(H5Tset_size(type, H5T_VARIABLE), "create a text type");
    check(H5Tset_cset(type, H5T_CSET_UTF8), "create a text type");
  }
  return type;
}

/// Row-major; {}: a scalar.
Id space_of(const std::vector<hsize_t>& shape, bool grows = false) {
  const std::vector<hsize_t> unlimited(shape.size(), H5S_UNLIMITED);
  return {shape.empty() ? H5Screate(H5S_SCALAR)
                        : H5Screate_simple(static_cast<int>(shape.size()),
                              shape.data(),
                              grows ? unlimited.data() : nullptr),
      H5Sclose,
      "create a data space"};
}

Id open_dataset(hid_t parent, const std::string& path) {
  return {H5Dopen2(parent, path.c_str(), H5P_DEFAULT), H5Dclose, "open dataset " + path};
}

void require(bool holds, const std::string& path, const std::string& what) {
  if (!holds)
    throw std::runtime_error(fmt::format("/{} {}", path, what));
}

/// Throws unless the values lie in the file itself, as they are, and are no more than it has bytes.
void require_plain(const Id& dataset, const Id& type, const Id& space, const std::string& path) {
  const Id options(H5Dget_create_plist(dataset), H5Pclose, "read the options of " + path);
  require(H5Pget_external_count(options) == 0 && H5Pget_layout(options) != H5D_VIRTUAL,
      path,
      "has its values in another place");
  require(H5Pget_nfilters(options) == 0, path, "is compressed or filtered");
  const Id file(H5Iget_file_id(dataset), H5Fclose, "find the file");
  hsize_t bytes = 0;
  check(H5Fget_filesize(file, &bytes), "tell the size of the file");
  const auto values = static_cast<hsize_t>(H5Sget_simple_extent_npoints(space));
  require(values <= std::min(bytes, H5Dget_storage_size(dataset)) / H5Tget_size(type),
      path,
      fmt::format("claims {} values, more than the file holds", values));
}

std::string printable(std::string text) {
  std::ranges::replace_if(
      text,
      [](char c) {
        return (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f;
      },
      '?');
  return text;
}

/// Calls `use` with the type of the values in memory and a pointer to them, as HDF5 wants texts.
template <class Use>
void with_data(const Values& values, const Use& use) {
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
  if (id < 0)
    throw std::runtime_error("HDF5 cannot " + what);
}

Id::~Id() {
  if (id_ >= 0)
    close_(id_);
}

void check(herr_t status, const std::string& what) {
  if (status < 0)
    throw std::runtime_error("HDF5 cannot " + what);
}

void write(hid_t parent, const Dataset& d, bool grows) {
  const std::vector<hsize_t> shape(d.shape.begin(), d.shape.end());
  const auto size =
      std::accumulate(d.shape.begin(), d.shape.end(), std::size_t{1}, std::multiplies<>());
  if (const auto given = std::visit([](const auto& list) { return list.size(); }, d.values);
      given != size)
    throw std::runtime_error(fmt::format("{}: {} values for a shape of {}", d.path, given, size));
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "create link options");
  check(H5Pset_create_intermediate_group(links, 1), "set link options");
  const Id options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "create dataset options");
  constexpr hsize_t chunk = 64;
  if (grows)
    check(H5Pset_chunk(options, 1, &chunk), "set the chunk size");
  const Id space = space_of(shape, grows);
  const bool is_there = grows && has(parent, d.path);
  if (is_there)
    check(H5Dset_extent(open_dataset(parent, d.path), shape.data()), "extend " + d.path);
  with_data(d.values, [&](hid_t type, const void* data) {
    const Id dataset =
        is_there ? open_dataset(parent, d.path)
                 : Id(H5Dcreate2(parent, d.path.c_str(), type, space, links, options, H5P_DEFAULT),
                       H5Dclose,
                       "create dataset " + d.path);
    if (size > 0)
      check(H5Dwrite(dataset, type, space, space, H5P_DEFAULT, data), "write " + d.path);
    if (is_there)
      return;
    write_attribute(dataset, "units", one(d.units));
    if (!d.axes.empty())
      write_attribute(dataset, "axes", one(d.axes));
    if (!d.labels.empty())
      write_attribute(dataset, "labels", d.labels, true);
    if (!d.codes.empty())
      write_attribute(dataset, "codes", d.codes, true);
  });
}

void write_attribute(hid_t object, const std::string& name, const Values& values, bool list) {
  const hsize_t size = std::visit([](const auto& all) { return all.size(); }, values);
  const Id space = space_of(list ? std::vector{size} : std::vector<hsize_t>());
  if (H5Aexists(object, name.c_str()) > 0)
    check(H5Adelete(object, name.c_str()), "replace attribute " + name);
  with_data(values, [&](hid_t type, const void* data) {
    const Id attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose,
        "create attribute " + name);
    if (size > 0)
      check(H5Awrite(attribute, type, data), "write attribute " + name);
  });
}

Id make_group(hid_t parent, const std::string& path) {
  return {H5Gcreate2(parent, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Gclose,
      "create group " + path};
}

Id open_group(hid_t parent, const std::string& path) {
  return {H5Gopen2(parent, path.c_str(), H5P_DEFAULT), H5Gclose, "open group " + path};
}

bool has(hid_t parent, const std::string& path) {
  return H5Lexists(parent, path.c_str(), H5P_DEFAULT) > 0;
}

void remove(hid_t parent, const std::string& path) {
  if (has(parent, path))
    check(H5Ldelete(parent, path.c_str(), H5P_DEFAULT), "replace " + path);
}

template <class T>
Array<T> read(hid_t parent, const std::string& path, std::size_t dimensions) {
  const Id dataset = open_dataset(parent, path);
  const Id space(H5Dget_space(dataset), H5Sclose, "read the shape of " + path);
  const Id stored(H5Dget_type(dataset), H5Tclose, "read the type of " + path), type = type_of<T>();
  const int found = H5Sget_simple_extent_ndims(space);
  require(H5Sget_simple_extent_type(space) != H5S_NULL && found == static_cast<int>(dimensions),
      path,
      fmt::format("has {} dimensions, not {}", found, dimensions));
  require(H5Tget_class(stored) == H5Tget_class(type) &&
              (is_text<T> ? H5Tis_variable_str(stored) > 0 : H5Tget_size(stored) <= sizeof(double)),
      path,
      "has an unexpected type");
  require_plain(dataset, stored, space, path);
  Array<T> array{std::vector<hsize_t>(dimensions), {}};
  check(H5Sget_simple_extent_dims(space, array.shape.data(), nullptr), "read the shape of " + path);
  const auto count = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space));
  if (count == 0)
    return array;
  std::vector<std::conditional_t<is_text<T>, char*, T>> values(count);
  check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "read " + path);
  if constexpr (is_text<T>) {
    for (const char* text : values)
      array.values.push_back(printable(text == nullptr ? "" : text));
    check(H5Dvlen_reclaim(type, space, H5P_DEFAULT, values.data()), "read " + path);
  } else {
    array.values = std::move(values);
  }
  return array;
}

template Array<std::int64_t> read(hid_t, const std::string&, std::size_t);
template Array<double> read(hid_t, const std::string&, std::size_t);
template Array<std::string> read(hid_t, const std::string&, std::size_t);
}  // namespace minitaw::record::h5

// SPDX-License-Identifier: BSD-3-Clause
#include "record/hdf5.hpp"
#include <algorithm>
#include <exception>
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
  Id type(H5Tcopy(is_text<T>                        ? H5T_C_S1
                  : std::is_same_v<T, double>       ? H5T_NATIVE_DOUBLE
                  : std::is_same_v<T, std::int64_t> ? H5T_NATIVE_INT64
                                                    : H5T_NATIVE_UINT64),
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

Id shape_of(hid_t dataset, const std::string& path, std::size_t dimensions) {
  Id space(H5Dget_space(dataset), H5Sclose, "read the shape of " + path);
  if (const int found = H5Sget_simple_extent_ndims(space); found != static_cast<int>(dimensions))
    throw std::runtime_error(
        fmt::format("HDF5: {} has {} dimensions, not {}", path, found, dimensions));
  return space;
}

hsize_t size_of_file(hid_t object) {
  const Id file(H5Iget_file_id(object), H5Fclose, "find the file");
  hsize_t size = 0;
  check(H5Fget_filesize(file, &size), "tell the size of the file");
  return size;
}

/// Texts, some at a time: a file can name one long text many times, and all of them together are at
/// most as long as the file where a program has written them.
std::vector<std::string> read_texts(
    hid_t dataset, hid_t space, const std::string& path, std::size_t count) {
  constexpr hsize_t most_at_once = 64 << 20;
  const hsize_t size = size_of_file(dataset),
                step = std::max<hsize_t>(1, most_at_once / std::max<hsize_t>(1, size));
  const Id type = type_of<std::string>();
  std::vector<std::string> found;
  hsize_t bytes = 0;
  while (found.size() < count) {
    const hsize_t first = found.size(), some = std::min<hsize_t>(step, count - first);
    const Id here(H5Screate_simple(1, &some, nullptr), H5Sclose, "create a data space");
    if (H5Sget_simple_extent_ndims(space) > 0)
      check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, nullptr, &some, nullptr),
          "select " + path);
    std::vector<char*> texts(some, nullptr);
    check(H5Dread(dataset, type, here, space, H5P_DEFAULT, texts.data()), "read " + path);
    for (const char* text : texts)
      bytes += found.emplace_back(text == nullptr ? "" : text).size();
    check(H5Dvlen_reclaim(type, here, H5P_DEFAULT, texts.data()), "read " + path);
    if (bytes > size)
      throw std::runtime_error(fmt::format("/{} holds more text than the file has bytes", path));
  }
  return found;
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

void write(hid_t parent, const Dataset& d, bool grows, hsize_t first) {
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
  bool is_there = grows && H5Lexists(parent, d.path.c_str(), H5P_DEFAULT) > 0;
  if (is_there && H5Dset_extent(open_dataset(parent, d.path), shape.data()) < 0) {
    check(H5Ldelete(parent, d.path.c_str(), H5P_DEFAULT),
        "replace " + d.path);  // another program wrote it, of one size
    is_there = false;
    first = 0;
  }
  with_data(d.values, [&](hid_t type, const void* data) {
    const Id dataset =
        is_there ? open_dataset(parent, d.path)
                 : Id(H5Dcreate2(parent, d.path.c_str(), type, space, links, options, H5P_DEFAULT),
                       H5Dclose,
                       "create dataset " + d.path);
    if (first > 0 && first < size) {
      const hsize_t count = size - first;
      check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, nullptr, &count, nullptr),
          "select " + d.path);
    }
    if (first < size)
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

template <class T>
Array<T> read(hid_t parent, const std::string& path, std::size_t dimensions) {
  const Id dataset = open_dataset(parent, path);
  const Id space = shape_of(dataset, path, dimensions);
  Array<T> array{std::vector<hsize_t>(dimensions), {}};
  check(H5Sget_simple_extent_dims(space, array.shape.data(), nullptr), "read the shape of " + path);
  const Id stored(H5Dget_type(dataset), H5Tclose, "read the type of " + path), type = type_of<T>();
  if (H5Tget_class(stored) != H5Tget_class(type) ||
      (is_text<T> ? H5Tis_variable_str(stored) <= 0 : H5Tget_size(stored) > sizeof(double)))
    throw std::runtime_error(fmt::format("HDF5: {} has an unexpected type", path));
  const auto count = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space));
  if (count == 0)
    return array;
  if constexpr (is_text<T>) {
    array.values = read_texts(dataset, space, path, count);
  } else {
    array.values.resize(count);
    check(
        H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.data()), "read " + path);
  }
  return array;
}

namespace {
/// Looks at all objects of a file, one after the other.
class Walk {
public:
  explicit Walk(hid_t file) : most_bytes_(size_of_file(file)) {
    const auto each =
        [](hid_t root, const char* path, const H5L_info_t* link, void* data) -> herr_t {
      auto* const walk = static_cast<Walk*>(data);
      try {
        walk->visit(root, path, *link);
        return 0;
      } catch (...) {
        walk->error_ = std::current_exception();
        return -1;
      }
    };
    const herr_t status = H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, each, this);
    if (error_)
      std::rethrow_exception(error_);
    check(status, "list the objects of the file");
  }

  Objects found;

private:
  static constexpr int deepest = 4;           // groups inside each other
  static constexpr hsize_t least_bytes = 40;  // that an object takes in a file, with its link

  [[noreturn]] static void refuse(const std::string& path, const std::string& what) {
    throw std::runtime_error(fmt::format("/{} {}", path, what));
  }

  void visit(hid_t root, const std::string& at, const H5L_info_t& link) {
    if (link.type != H5L_TYPE_HARD)
      refuse(at, "is a link to another place");
    const Id object(H5Oopen(root, at.c_str(), H5P_DEFAULT), H5Oclose, "open /" + at);
    H5O_info_t info{};
#if H5_VERSION_GE(1, 12, 0)
    check(H5Oget_info(object, &info, H5O_INFO_BASIC), "read /" + at);
#else
    check(H5Oget_info(object, &info), "read /" + at);
#endif
    if (info.rc != 1)
      refuse(at, "is linked from several places");
    if (++objects_ > most_bytes_ / least_bytes)
      refuse(at, "is one of more objects than the file has room for");
    if (info.type == H5O_TYPE_DATASET)
      return visit_dataset(object, at);
    if (info.type != H5O_TYPE_GROUP)
      refuse(at, "is neither a group nor a dataset");
    if (std::ranges::count(at, '/') >= deepest)
      refuse(at, "lies deeper than any part of a result");
    H5G_info_t group{};
    check(H5Gget_info(object, &group), "read /" + at);
    found.emplace(at, Extent{H5T_NO_CLASS, {group.nlinks}});
  }

  void visit_dataset(const Id& dataset, const std::string& at) {
    const Id options(H5Dget_create_plist(dataset), H5Pclose, "read the options of /" + at);
    if (H5Pget_external_count(options) != 0)
      refuse(at, "has its values in another file");
    if (H5Pget_layout(options) == H5D_VIRTUAL)
      refuse(at, "has its values in other datasets");
    if (H5Pget_nfilters(options) != 0)
      refuse(at, "is compressed or filtered");
    const Id type(H5Dget_type(dataset), H5Tclose, "read the type of /" + at);
    const H5T_class_t kind = H5Tget_class(type);
    const bool is_text = kind == H5T_STRING && H5Tis_variable_str(type) > 0;
    const Id space(H5Dget_space(dataset), H5Sclose, "read the shape of /" + at);
    const int dimensions = H5Sget_simple_extent_ndims(space);
    if ((!is_text && kind != H5T_INTEGER && kind != H5T_FLOAT) ||
        H5Sget_simple_extent_type(space) == H5S_NULL || dimensions < 0)
      refuse(at, "holds neither numbers nor texts");
    Extent extent{kind, std::vector<hsize_t>(static_cast<std::size_t>(dimensions))};
    check(
        H5Sget_simple_extent_dims(space, extent.shape.data(), nullptr), "read the shape of /" + at);
    const auto values = static_cast<hsize_t>(H5Sget_simple_extent_npoints(space));
    const hsize_t stored = H5Dget_storage_size(dataset), each = H5Tget_size(type);
    if (values > stored / each || values > (most_bytes_ - bytes_) / each)
      refuse(at, fmt::format("claims {} values, more than the file holds", values));
    bytes_ += values * each;
    found.emplace(at, std::move(extent));
  }

  hsize_t most_bytes_, bytes_ = 0, objects_ = 0;
  std::exception_ptr error_;  ///< none may pass through HDF5
};
}  // namespace

Objects objects_of(hid_t file) {
  return std::move(Walk(file).found);
}

template Array<std::int64_t> read(hid_t, const std::string&, std::size_t);
template Array<std::uint64_t> read(hid_t, const std::string&, std::size_t);
template Array<double> read(hid_t, const std::string&, std::size_t);
template Array<std::string> read(hid_t, const std::string&, std::size_t);
}  // namespace minitaw::record::h5

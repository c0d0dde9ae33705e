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
using Shape = std::vector<hsize_t>;

template <class T>
Id type_of() {
  if (!is_text<T>)
    return {H5Tcopy(std::is_same_v<T, double> ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64),
        H5Tclose,
        "copy a type"};
  Id type(H5Tcopy(H5T_C_S1), H5Tclose, "copy a type");
  require_success(H5Tset_size(type, H5T_VARIABLE), "create a text type");
  require_success(H5Tset_cset(type, H5T_CSET_UTF8), "create a text type");
  return type;
}

/// Returns the space of an array, or of a scalar if there is no shape.
Id space_of(const Shape& shape) {
  const hid_t space = shape.empty()
                          ? H5Screate(H5S_SCALAR)
                          : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  return {space, H5Sclose, "create a data space"};
}

Id open_dataset(hid_t parent, const std::string& path) {
  return {H5Dopen2(parent, path.c_str(), H5P_DEFAULT), H5Dclose, "open dataset " + path};
}

Id shape_of(hid_t dataset) {
  return {H5Dget_space(dataset), H5Sclose, "read a shape"};
}

Id options(hid_t kind) {
  return {H5Pcreate(kind), H5Pclose, "create options"};
}

Id with_groups_above() {
  Id links = options(H5P_LINK_CREATE);
  require_success(H5Pset_create_intermediate_group(links, 1), "set link options");
  return links;
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

Values one(const Cell& cell) {
  return std::visit([](const auto& value) -> Values { return std::vector{value}; }, cell);
}

void write_attribute(
    hid_t object, const std::string& name, const Values& values, const Shape& shape) {
  if (H5Aexists(object, name.c_str()) > 0)
    require_success(H5Adelete(object, name.c_str()), "replace attribute " + name);
  const Id space = space_of(shape);
  with_data(values, [&](hid_t type, const void* data) {
    const Id attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose,
        "create attribute " + name);
    if (H5Sget_simple_extent_npoints(space) > 0)
      require_success(H5Awrite(attribute, type, data), "write attribute " + name);
  });
}

/// A new dataset with the attributes of its field.
Id create(hid_t parent, const Field& field, hid_t type, hid_t space, hid_t storage) {
  const Id links = with_groups_above();
  Id dataset(H5Dcreate2(parent, field.name.c_str(), type, space, links, storage, H5P_DEFAULT),
      H5Dclose,
      "create dataset " + field.name);
  set_attribute(dataset, "units", Cell(field.units));
  set_attribute(dataset, "doc", Cell(field.doc));
  if (!field.axes.empty())
    set_attribute(dataset, "axes", Cell(field.axes));
  if (!field.labels.empty())
    set_attribute(dataset, "labels", Values(field.labels));
  if (!field.codes.empty())
    set_attribute(dataset, "codes", Values(field.codes));
  return dataset;
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

template <class T>
Values read_as(hid_t dataset, const std::string& path) {
  const Id space = shape_of(dataset), type = type_of<T>();
  using Stored = std::conditional_t<is_text<T>, char*, T>;
  std::vector<Stored> values(H5Sget_simple_extent_npoints(space));
  if (!values.empty())
    require_success(
        H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "read " + path);
  if constexpr (is_text<T>) {
    std::vector<std::string> texts;
    for (const char* text : values)
      texts.push_back(printable(text == nullptr ? "" : text));
    if (!values.empty())
      require_success(H5Dvlen_reclaim(type, space, H5P_DEFAULT, values.data()), "read " + path);
    return texts;
  } else {
    return values;
  }
}

/// Returns what is wrong with an object that has not been read; empty: nothing.
std::string fault_of(hid_t object) {
  if (H5Iget_type(object) != H5I_DATASET)
    return "";
  const Id storage(H5Dget_create_plist(object), H5Pclose, "read options");
  if (H5Pget_external_count(storage) != 0 || H5Pget_layout(storage) == H5D_VIRTUAL)
    return "has its values in another place";
  if (H5Pget_nfilters(storage) != 0)
    return "is compressed or filtered";
  const Id type(H5Dget_type(object), H5Tclose, "read a type"), space = shape_of(object);
  const auto values = static_cast<hsize_t>(H5Sget_simple_extent_npoints(space));
  if (values > H5Dget_storage_size(object) / std::max<std::size_t>(1, H5Tget_size(type)))
    return fmt::format("claims {} values, more than the file holds", values);
  return "";
}

/// For H5Lvisit2: notes the first object that is not sound, and ends the visit there.
herr_t visit(hid_t parent, const char* name, const H5L_info2_t* link, void* fault) {
  std::string why = "is a link to another place";
  if (link->type == H5L_TYPE_HARD) {
    try {
      why = fault_of(Id(H5Oopen(parent, name, H5P_DEFAULT), H5Oclose, "open it"));
    } catch (const std::runtime_error& error) {  // HDF5 that has called knows no exceptions
      why = error.what();
    }
  }
  if (!why.empty())
    *static_cast<std::string*>(fault) = fmt::format("/{} {}", printable(name), why);
  return why.empty() ? 0 : 1;
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

void require_success(herr_t status, const std::string& what) {
  if (status < 0)
    throw std::runtime_error("HDF5 cannot " + what);
}

void write(hid_t parent, const Field& field, const Elements& elements) {
  const auto size = std::accumulate(
      elements.shape.begin(), elements.shape.end(), std::size_t{1}, std::multiplies<>());
  if (const auto given = std::visit([](const auto& list) { return list.size(); }, elements.values);
      given != size)
    throw std::runtime_error(
        fmt::format("{}: {} values for a shape of {}", field.name, given, size));
  const Id space = space_of({elements.shape.begin(), elements.shape.end()});
  with_data(elements.values, [&](hid_t type, const void* values) {
    const Id dataset = create(parent, field, type, space, H5P_DEFAULT);
    if (size > 0)
      require_success(
          H5Dwrite(dataset, type, space, space, H5P_DEFAULT, values), "write " + field.name);
  });
}

void make_column(hid_t parent, const Field& field, const Cell& example) {
  constexpr hsize_t none = 0, unlimited = H5S_UNLIMITED, chunk = 64;
  const Id space(H5Screate_simple(1, &none, &unlimited), H5Sclose, "create a data space");
  const Id storage = options(H5P_DATASET_CREATE);
  require_success(H5Pset_chunk(storage, 1, &chunk), "set the chunk size");
  with_data(one(example),
      [&](hid_t type, const void*) { (void)create(parent, field, type, space, storage); });
}

void append(hid_t parent, const std::string& path, const Cell& value) {
  const Id dataset = open_dataset(parent, path);
  constexpr hsize_t count = 1;
  const auto at = static_cast<hsize_t>(H5Sget_simple_extent_npoints(shape_of(dataset)));
  const hsize_t length = at + count;
  require_success(H5Dset_extent(dataset, &length), "extend " + path);
  const Id all = shape_of(dataset), element = space_of({count});
  require_success(
      H5Sselect_hyperslab(all, H5S_SELECT_SET, &at, nullptr, &count, nullptr), "select in " + path);
  with_data(one(value), [&](hid_t type, const void* data) {
    require_success(H5Dwrite(dataset, type, element, all, H5P_DEFAULT, data), "write " + path);
  });
}

void set_attribute(hid_t object, const std::string& name, const Values& list) {
  const hsize_t length = std::visit([](const auto& all) { return all.size(); }, list);
  write_attribute(object, name, list, {length});
}

void set_attribute(hid_t object, const std::string& name, const Cell& value) {
  write_attribute(object, name, one(value), {});
}

Id make_group(hid_t parent, const std::string& path) {
  const Id order = options(H5P_GROUP_CREATE);
  require_success(H5Pset_link_creation_order(order, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
      "keep the order of " + path);
  return {H5Gcreate2(parent, path.c_str(), with_groups_above(), order, H5P_DEFAULT),
      H5Gclose,
      "create group " + path};
}

Id open_group(hid_t parent, const std::string& path) {
  return {H5Gopen2(parent, path.c_str(), H5P_DEFAULT), H5Gclose, "open group " + path};
}

bool has(hid_t parent, const std::string& path) {
  return H5Lexists(parent, path.c_str(), H5P_DEFAULT) > 0;
}

Values read(hid_t parent, const std::string& path) {
  const Id dataset = open_dataset(parent, path);
  const Id type(H5Dget_type(dataset), H5Tclose, "read the type of " + path);
  switch (H5Tget_class(type)) {
  case H5T_INTEGER: return read_as<std::int64_t>(dataset, path);
  case H5T_FLOAT: return read_as<double>(dataset, path);
  default: return read_as<std::string>(dataset, path);
  }
}

void require_sound(hid_t file) {
  std::string fault;
  require_success(
      H5Lvisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, &fault), "look at all objects");
  if (!fault.empty())
    throw std::runtime_error(fault);
}
}  // namespace minitaw::record::h5

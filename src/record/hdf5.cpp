#include "record/hdf5.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace minitaw::record::h5 {

namespace {

Id space_of(const std::vector<hsize_t>& shape) {
  const hid_t id = shape.empty() ? H5Screate(H5S_SCALAR)
                                 : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  return {id, H5Sclose, "create a data space"};
}

Id text_type() {
  Id type(H5Tcopy(H5T_C_S1), H5Tclose, "create a text type");
  check(H5Tset_size(type.get(), H5T_VARIABLE), "create a text type");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "create a text type");
  return type;
}

Id copy_of(hid_t type) { return {H5Tcopy(type), H5Tclose, "copy a type"}; }

Id file_type(const std::vector<std::int64_t>&) { return copy_of(H5T_STD_I64LE); }
Id file_type(const std::vector<std::uint64_t>&) { return copy_of(H5T_STD_U64LE); }
Id file_type(const std::vector<double>&) { return copy_of(H5T_IEEE_F64LE); }
Id file_type(const std::vector<std::string>&) { return text_type(); }

Id memory_type(const std::vector<std::int64_t>&) { return copy_of(H5T_NATIVE_INT64); }
Id memory_type(const std::vector<std::uint64_t>&) { return copy_of(H5T_NATIVE_UINT64); }
Id memory_type(const std::vector<double>&) { return copy_of(H5T_NATIVE_DOUBLE); }
Id memory_type(const std::vector<std::string>&) { return text_type(); }

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> found;
  for (const std::string& text : texts) found.push_back(text.c_str());
  return found;
}

/// Calls `use` with a pointer to the values in the layout that HDF5 wants.
template <class T, class Use>
void with_data(const std::vector<T>& values, const Use& use) {
  if constexpr (std::is_same_v<T, std::string>) use(static_cast<const void*>(pointers(values).data()));
  else use(static_cast<const void*>(values.data()));
}

/// A cell as values of one element.
Values one(const Cell& cell) {
  return std::visit([](const auto& value) -> Values { return std::vector{value}; }, cell);
}

Id open_dataset(hid_t group, const std::string& name) {
  return {H5Dopen2(group, name.c_str(), H5P_DEFAULT), H5Dclose, "open dataset " + name};
}

hsize_t count_of(hid_t space, const std::string& name) {
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 0) throw std::runtime_error(fmt::format("HDF5: {} has no shape", name));
  return static_cast<hsize_t>(count);
}

hsize_t length(hid_t dataset, const std::string& name) {
  const Id space(H5Dget_space(dataset), H5Sclose, "read the shape of " + name);
  if (H5Sget_simple_extent_ndims(space.get()) != 1)
    throw std::runtime_error(fmt::format("HDF5: {} is not one-dimensional", name));
  return count_of(space.get(), name);
}

void require_class(hid_t dataset, H5T_class_t wanted, const std::string& name) {
  const Id type(H5Dget_type(dataset), H5Tclose, "read the type of " + name);
  const bool usual = wanted == H5T_STRING ? H5Tis_variable_str(type.get()) > 0 : H5Tget_size(type.get()) <= 8;
  if (H5Tget_class(type.get()) != wanted || !usual)
    throw std::runtime_error(fmt::format("HDF5: {} has an unexpected type", name));
}

H5T_class_t class_of(std::int64_t) { return H5T_INTEGER; }
H5T_class_t class_of(std::uint64_t) { return H5T_INTEGER; }
H5T_class_t class_of(double) { return H5T_FLOAT; }
H5T_class_t class_of(const std::string&) { return H5T_STRING; }

template <class T>
std::vector<T> read_all(hid_t dataset, hsize_t rows, const std::string& name) {
  std::vector<T> values(rows);
  if (rows > 0)
    check(H5Dread(dataset, memory_type(values).get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
          "read " + name);
  return values;
}

template <>
std::vector<std::string> read_all(hid_t dataset, hsize_t rows, const std::string& name) {
  return read_texts(rows, name, [&](hid_t type, void* to) {
    return H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
  });
}

template <class T>
std::vector<T> read_typed(hid_t group, const std::string& name) {
  const Id dataset = open_dataset(group, name);
  const hsize_t rows = length(dataset.get(), name);
  require_class(dataset.get(), class_of(T()), name);
  return read_all<T>(dataset.get(), rows, name);
}

template <class T>
Matrix<T> read_matrix(hid_t group, const std::string& name) {
  const Id dataset = open_dataset(group, name);
  const Id space(H5Dget_space(dataset.get()), H5Sclose, "read the shape of " + name);
  if (H5Sget_simple_extent_ndims(space.get()) != 2)
    throw std::runtime_error(fmt::format("HDF5: {} is not two-dimensional", name));
  hsize_t shape[2] = {0, 0};
  check(H5Sget_simple_extent_dims(space.get(), shape, nullptr), "read the shape of " + name);
  require_class(dataset.get(), class_of(T()), name);
  return {shape[0], shape[1], read_all<T>(dataset.get(), shape[0] * shape[1], name)};
}

std::vector<std::string> attribute_texts(hid_t object, const std::string& name, const std::string& whose) {
  const Id attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "open " + whose);
  const Id type(H5Aget_type(attribute.get()), H5Tclose, "read the type of " + whose);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) <= 0)
    throw std::runtime_error(fmt::format("HDF5: {}: no texts", whose));
  const Id space(H5Aget_space(attribute.get()), H5Sclose, "read the shape of " + whose);
  return read_texts(count_of(space.get(), whose), whose,
                    [&](hid_t text, void* to) { return H5Aread(attribute.get(), text, to); });
}

void attach(hid_t object, const std::string& name, const Values& values, const std::vector<hsize_t>& shape) {
  std::visit(
      [&](const auto& list) {
        const Id attribute(H5Acreate2(object, name.c_str(), file_type(list).get(), space_of(shape).get(),
                                      H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose, "create attribute " + name);
        with_data(list, [&](const void* data) {
          check(H5Awrite(attribute.get(), memory_type(list).get(), data), "write attribute " + name);
        });
      },
      values);
}

void write_notes(hid_t dataset, const Notes& notes) {
  h5::write_attribute(dataset, "units", notes.units);
  if (!notes.axes.empty()) h5::write_attribute(dataset, "axes", notes.axes);
  if (!notes.labels.empty()) h5::write_attribute(dataset, "labels", notes.labels);
  if (!notes.codes.empty()) h5::write_attribute(dataset, "codes", notes.codes);
}

}  // namespace

Id::Id(hid_t id, Close close, const std::string& what) : id_(id), close_(close) {
  if (id < 0) throw std::runtime_error("HDF5 cannot " + what);
}

Id& Id::operator=(Id&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

Id::~Id() {
  if (id_ >= 0) close_(id_);
}

void check(herr_t status, const std::string& what) {
  if (status < 0) throw std::runtime_error("HDF5 cannot " + what);
}

void silence() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);  // miniTaw compresses nothing, and no file is to make it load foreign code
}

Id make_group(hid_t parent, const std::string& name) {
  return {H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose,
          "create group " + name};
}

Id open_group(hid_t parent, const std::string& name) {
  return {H5Gopen2(parent, name.c_str(), H5P_DEFAULT), H5Gclose, "open group " + name};
}

bool exists(hid_t parent, const std::string& name) {
  return H5Lexists(parent, name.c_str(), H5P_DEFAULT) > 0;
}

void write(hid_t parent, const std::string& name, const Values& values, const std::vector<hsize_t>& shape,
           const Notes& notes) {
  const hsize_t count = std::accumulate(shape.begin(), shape.end(), hsize_t{1}, std::multiplies<>());
  std::visit(
      [&](const auto& list) {
        if (list.size() != count)
          throw std::runtime_error(fmt::format("{}: {} values for a shape of {}", name, list.size(), count));
        const Id dataset(H5Dcreate2(parent, name.c_str(), file_type(list).get(), space_of(shape).get(),
                                    H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                         H5Dclose, "create dataset " + name);
        if (count > 0)
          with_data(list, [&](const void* data) {
            check(H5Dwrite(dataset.get(), memory_type(list).get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data),
                  "write " + name);
          });
        write_notes(dataset.get(), notes);
      },
      values);
}

void write_attribute(hid_t object, const std::string& name, const std::vector<std::string>& values) {
  attach(object, name, Values{values}, {values.size()});
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  attach(object, name, Values{std::vector{value}}, {});
}

void write_attribute(hid_t object, const std::string& name, std::int64_t value) {
  attach(object, name, Values{std::vector{value}}, {});
}

std::int64_t read_attribute(hid_t object, const std::string& name) {
  const Id attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "open attribute " + name);
  const Id space(H5Aget_space(attribute.get()), H5Sclose, "read the shape of attribute " + name);
  const Id type(H5Aget_type(attribute.get()), H5Tclose, "read the type of attribute " + name);
  if (H5Sget_simple_extent_npoints(space.get()) != 1 || H5Tget_class(type.get()) != H5T_INTEGER ||
      H5Tget_size(type.get()) > 8)
    throw std::runtime_error(fmt::format("HDF5: attribute {} is not one number", name));
  std::int64_t value = 0;
  check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), "read attribute " + name);
  return value;
}

std::string read_text_attribute(hid_t object, const std::string& name) {
  const std::vector<std::string> texts = attribute_texts(object, name, "attribute " + name);
  if (texts.size() != 1) throw std::runtime_error(fmt::format("HDF5: attribute {} is not one text", name));
  return texts.front();
}

void make_column(hid_t group, const std::string& name, const Cell& sample, const Notes& notes) {
  const hsize_t none = 0;
  const hsize_t unlimited = H5S_UNLIMITED;
  const hsize_t chunk = 64;
  const Id space(H5Screate_simple(1, &none, &unlimited), H5Sclose, "create a data space");
  const Id options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "create dataset options");
  check(H5Pset_chunk(options.get(), 1, &chunk), "set the chunk size");
  const Id type = std::visit([](const auto& list) { return file_type(list); }, one(sample));
  const Id dataset(
      H5Dcreate2(group, name.c_str(), type.get(), space.get(), H5P_DEFAULT, options.get(), H5P_DEFAULT),
      H5Dclose, "create dataset " + name);
  write_notes(dataset.get(), notes);
}

void put(hid_t group, const std::string& name, hsize_t row, const Cell& cell) {
  const Id dataset = open_dataset(group, name);
  const hsize_t rows = std::max(row + 1, length(dataset.get(), name));
  check(H5Dset_extent(dataset.get(), &rows), "grow " + name);
  const Id file(H5Dget_space(dataset.get()), H5Sclose, "read the shape of " + name);
  const hsize_t count = 1;
  check(H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, &row, nullptr, &count, nullptr),
        "select a row of " + name);
  const Id memory = space_of({1});
  std::visit(
      [&](const auto& list) {
        with_data(list, [&](const void* data) {
          check(H5Dwrite(dataset.get(), memory_type(list).get(), memory.get(), file.get(), H5P_DEFAULT, data),
                "write " + name);
        });
      },
      one(cell));
}

std::vector<std::string> read_texts(hsize_t count, const std::string& name,
                                    const std::function<herr_t(hid_t type, void* to)>& read) {
  std::vector<char*> raw(count, nullptr);
  if (count == 0) return {};
  const Id type = text_type();
  const Id space = space_of({count});
  check(read(type.get(), static_cast<void*>(raw.data())), "read " + name);
  std::vector<std::string> values;
  for (const char* text : raw) values.emplace_back(text == nullptr ? "" : text);
  check(H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, raw.data()), "read " + name);
  return values;
}

std::vector<Cell> read_column(hid_t group, const std::string& name, const Cell& sample) {
  return std::visit(
      [&](const auto& value) {
        const auto values = read_typed<std::decay_t<decltype(value)>>(group, name);
        return std::vector<Cell>(values.begin(), values.end());
      },
      sample);
}

std::vector<std::int64_t> read_integers(hid_t group, const std::string& name) {
  return read_typed<std::int64_t>(group, name);
}

std::vector<double> read_reals(hid_t group, const std::string& name) {
  return read_typed<double>(group, name);
}

Matrix<double> read_real_matrix(hid_t group, const std::string& name) {
  return read_matrix<double>(group, name);
}

Matrix<std::uint64_t> read_unsigned_matrix(hid_t group, const std::string& name) {
  return read_matrix<std::uint64_t>(group, name);
}

std::string read_text(hid_t group, const std::string& name) {
  const Id dataset = open_dataset(group, name);
  const Id space(H5Dget_space(dataset.get()), H5Sclose, "read the shape of " + name);
  if (count_of(space.get(), name) != 1)
    throw std::runtime_error(fmt::format("HDF5: {} is not one text", name));
  require_class(dataset.get(), H5T_STRING, name);
  return read_all<std::string>(dataset.get(), 1, name).front();
}

std::vector<std::string> read_text_list(hid_t group, const std::string& name) {
  return read_typed<std::string>(group, name);
}

}  // namespace minitaw::record::h5

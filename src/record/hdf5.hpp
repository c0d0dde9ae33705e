#pragma once

#include <hdf5.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "record/table.hpp"

/// The few things that miniTaw needs of HDF5, with checked return codes. Every failure throws
/// std::runtime_error.
namespace minitaw::record::h5 {

/// Owns an HDF5 identifier.
class Id {
public:
  using Close = herr_t (*)(hid_t);

  /// `what` names the call in the message if the identifier is invalid.
  Id(hid_t id, Close close, const std::string& what);
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&& other) noexcept;
  ~Id();

  [[nodiscard]] hid_t get() const { return id_; }

private:
  hid_t id_;
  Close close_;
};

/// Throws if an HDF5 call failed.
void check(herr_t status, const std::string& what);
/// HDF5 prints its error stack by default; the user gets our one sentence instead.
void silence();

using Values = std::variant<std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<double>,
                            std::vector<std::string>>;

/// What a reader has to know about a dataset: attributes `units`, `axes`, `labels` (names along the last
/// axis) and `codes` (what the values 0, 1, ... mean).
struct Notes {
  std::string units;
  std::string axes = {};
  std::vector<std::string> labels = {};
  std::vector<std::string> codes = {};
};

[[nodiscard]] Id make_group(hid_t parent, const std::string& name);
[[nodiscard]] Id open_group(hid_t parent, const std::string& name);
[[nodiscard]] bool exists(hid_t parent, const std::string& name);
/// A dataset of this shape (row-major; {}: a scalar). The values may be fewer than none: a shape with a 0 is
/// empty.
void write(hid_t parent, const std::string& name, const Values& values, const std::vector<hsize_t>& shape,
           const Notes& notes);

void write_attribute(hid_t object, const std::string& name, const std::vector<std::string>& values);
void write_attribute(hid_t object, const std::string& name, const std::string& value);
void write_attribute(hid_t object, const std::string& name, std::int64_t value);
[[nodiscard]] std::int64_t read_attribute(hid_t object, const std::string& name);
[[nodiscard]] std::string read_text_attribute(hid_t object, const std::string& name);

/// Columns: one-dimensional datasets that grow row by row. The kind of `sample` decides the type.
void make_column(hid_t group, const std::string& name, const Cell& sample, const Notes& notes);
/// Writes row `row`, growing the column if needed.
void put(hid_t group, const std::string& name, hsize_t row, const Cell& cell);
/// All rows; throws unless the column has the type of `sample`.
[[nodiscard]] std::vector<Cell> read_column(hid_t group, const std::string& name, const Cell& sample);

/// Texts through `read`, which fills pointers that HDF5 allocates.
[[nodiscard]] std::vector<std::string> read_texts(hsize_t count, const std::string& name,
                                                  const std::function<herr_t(hid_t type, void* to)>& read);

/// A whole dataset of one dimension; throws unless it has that type.
[[nodiscard]] std::vector<std::int64_t> read_integers(hid_t group, const std::string& name);
[[nodiscard]] std::vector<double> read_reals(hid_t group, const std::string& name);
/// A whole dataset of two dimensions; throws unless it has that type.
template <class T>
struct Matrix {
  hsize_t rows = 0, columns = 0;
  std::vector<T> values;  ///< row-major
};
[[nodiscard]] Matrix<double> read_real_matrix(hid_t group, const std::string& name);
[[nodiscard]] Matrix<std::uint64_t> read_unsigned_matrix(hid_t group, const std::string& name);
/// A text, and a list of them; throws unless it is one.
[[nodiscard]] std::string read_text(hid_t group, const std::string& name);
[[nodiscard]] std::vector<std::string> read_text_list(hid_t group, const std::string& name);

}  // namespace minitaw::record::h5

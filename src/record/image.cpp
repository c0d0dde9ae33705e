#include "record/image.hpp"

#include <fmt/format.h>

#include <atomic>
#include <stdexcept>

#include "base/error.hpp"
#include "record/disk.hpp"

namespace minitaw::record {

namespace {

constexpr const char* format_name = "minitaw";

/// Options that keep the file in memory.
h5::Id memory_access() {
  constexpr std::size_t step = std::size_t{256} << 10;
  h5::Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "create file options");
  h5::check(H5Pset_fapl_core(access.get(), step, false), "keep a file in memory");
  return access;
}

/// HDF5 tells open files apart by name, also those that are never on disk.
std::string unique_name() {
  static std::atomic<unsigned> count = 0;
  return fmt::format("minitaw-{}", count++);
}

std::int64_t schema_of(hid_t file, const std::string& path) {
  try {
    return h5::read_attribute(file, "schema");
  } catch (const std::runtime_error& error) {
    throw InputError(fmt::format("{} is damaged: {}", path, error.what()));
  }
}

void require_schema(hid_t file, const std::string& path) {
  if (H5Aexists(file, "format") <= 0 || H5Aexists(file, "schema") <= 0)
    throw InputError(fmt::format("{} is an HDF5 file, but not a miniTaw result", path));
  const std::int64_t found = schema_of(file, path);
  if (found < 1 || found > schema_version)
    throw InputError(fmt::format("{} has schema version {}, this program reads up to {}; use a newer minitaw",
                                 path, found, schema_version));
}

}  // namespace

Image Image::create() {
  h5::silence();
  const h5::Id access = memory_access();
  h5::Id file(H5Fcreate(unique_name().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose,
              "create a file in memory");
  h5::write_attribute(file.get(), "format", std::string(format_name));
  h5::write_attribute(file.get(), "schema", schema_version);
  return Image(std::move(file));
}

Image Image::load(const std::string& path) {
  h5::silence();
  std::vector<std::byte> bytes = read_file(path);
  const h5::Id access = memory_access();
  h5::check(H5Pset_file_image(access.get(), bytes.data(), bytes.size()), "take a file from memory");
  const hid_t id = bytes.empty() ? -1 : H5Fopen(unique_name().c_str(), H5F_ACC_RDWR, access.get());
  if (id < 0) throw InputError(fmt::format("{} is not an HDF5 file, or it is damaged", path));
  h5::Id file(id, H5Fclose, "open a file in memory");
  require_schema(file.get(), path);
  return Image(std::move(file));
}

std::int64_t Image::schema() const { return h5::read_attribute(file_.get(), "schema"); }

std::vector<std::byte> Image::bytes() const {
  h5::check(H5Fflush(file_.get(), H5F_SCOPE_LOCAL), "flush the file");
  const ssize_t size = H5Fget_file_image(file_.get(), nullptr, 0);
  if (size < 0) throw std::runtime_error("HDF5 cannot tell the size of the file");
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  if (H5Fget_file_image(file_.get(), bytes.data(), bytes.size()) != size)
    throw std::runtime_error("HDF5 cannot hand out the file");
  return bytes;
}

}  // namespace minitaw::record

#include "record/image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>

#include "base/error.hpp"
#include "record/disk.hpp"
#include "record/probe.hpp"
#include "record/reading.hpp"
#include "record/seal.hpp"
#include "record/walk.hpp"

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

void require_format(hid_t file, const std::string& path) {
  if (H5Aexists(file, "format") <= 0 || H5Aexists(file, "schema") <= 0 ||
      h5::read_text_attribute(file, "format") != format_name)
    throw InputError(fmt::format("{} is an HDF5 file, but not a miniTaw result", path));
}

void require_schema(std::int64_t schema, const std::string& path) {
  if (schema < 1) throw InputError(fmt::format("{} is damaged: there is no schema {}", path, schema));
  if (schema > schema_version) throw InputError(too_new(path, schema, schema_version));
  if (schema >= first_sealed_schema)
    throw InputError(
        fmt::format("{} has lost its seal, the {} bytes in front of the HDF5 file: a program such as "
                    "h5repack has written it anew; use the file that minitaw run has left",
                    path, seal_size));
}

h5::Id open_bytes(Bytes bytes, const std::string& path) {
  const h5::Id access = memory_access();
  // HDF5 takes a copy; it asks for a pointer to what may be changed, but does not.
  h5::check(H5Pset_file_image(access.get(), const_cast<std::byte*>(bytes.data()), bytes.size()),
            "take a file from memory");
  const hid_t id = bytes.empty() ? -1 : H5Fopen(unique_name().c_str(), H5F_ACC_RDWR, access.get());
  if (id < 0) throw InputError(fmt::format("{} is damaged: HDF5 cannot open it", path));
  return {id, H5Fclose, "open a file in memory"};
}

bool is_hdf5(Bytes content) {
  constexpr std::string_view signature = "\x89HDF\r\n\x1a\n";
  return std::string_view(reinterpret_cast<const char*>(content.data()), content.size())
      .starts_with(signature);
}

void require_hdf5(Bytes content, const std::string& path) {
  if (is_hdf5(content)) return;
  if (content.size() > seal_size && is_hdf5(content.subspan(seal_size)))
    throw InputError(
        fmt::format("{} is damaged or was changed after it was written: its seal, the first {} bytes, "
                    "cannot be understood",
                    path, seal_size));
  throw InputError(fmt::format("{} is not a miniTaw result, or it is damaged", path));
}

/// The HDF5 part of a file, before HDF5 has seen it.
struct Part {
  Bytes image;
  std::optional<std::int64_t> schema;  ///< that the seal speaks of; nothing: no seal
};

Part part_of(Bytes content, const std::string& path) {
  if (has_seal(content)) {
    const Unsealed found = unseal(content, schema_version, path);
    return {found.image, found.schema};
  }
  require_hdf5(content, path);
  return {content, std::nullopt};
}

h5::Id open_part(const Part& part, const std::string& path) {
  return reading(path, [&] {
    h5::Id file = open_bytes(part.image, path);
    require_format(file.get(), path);
    const std::int64_t found = h5::read_attribute(file.get(), "schema");
    if (!part.schema) require_schema(found, path);
    else if (*part.schema != found)
      throw InputError(
          fmt::format("{} is damaged: its seal says schema {}, its content {}", path, *part.schema, found));
    return file;
  });
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

Image Image::load(const std::string& path) { return of(read_file(path), path); }

Image Image::of(const std::vector<std::byte>& content, const std::string& path) {
  h5::silence();
  const Part part = part_of(content, path);
  probe(path, content.size(), [&] {
    const h5::Id file = open_part(part, path);
    read_everything(file.get());
  });
  return Image(open_part(part, path));
}

Image Image::load_sealed(const std::string& path) {
  h5::silence();
  const std::vector<std::byte> content = read_file(path);
  const Part part = part_of(content, path);
  if (!part.schema)
    throw InputError(
        fmt::format("{} cannot be added to: it has no seal, so it is of an older version of minitaw, or no "
                    "miniTaw result; name another file with -o",
                    path));
  return Image(open_part(part, path));
}

std::int64_t Image::schema() const { return h5::read_attribute(file_.get(), "schema"); }

std::vector<std::byte> Image::bytes() const {
  h5::check(H5Fflush(file_.get(), H5F_SCOPE_LOCAL), "flush the file");
  const ssize_t size = H5Fget_file_image(file_.get(), nullptr, 0);
  if (size < 0) throw std::runtime_error("HDF5 cannot tell the size of the file");
  std::vector<std::byte> bytes(seal_size + static_cast<std::size_t>(size));
  const std::span<std::byte> image = std::span(bytes).subspan(seal_size);
  if (H5Fget_file_image(file_.get(), image.data(), image.size()) != size)
    throw std::runtime_error("HDF5 cannot hand out the file");
  const std::string seal = make_seal(schema(), image);
  std::ranges::copy(std::as_bytes(std::span(seal)), bytes.begin());
  return bytes;
}

}  // namespace minitaw::record

// SPDX-License-Identifier: BSD-3-Clause
#include "record/file.hpp"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <zlib.h>
#include "base/error.hpp"

namespace minitaw::record {
namespace {
[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(
      fmt::format("{} cannot be written: {} ({})", path, what, std::strerror(errno)));
}

class Descriptor {
public:
  explicit Descriptor(int fd) : fd_(fd) {}

  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  ~Descriptor() {
    if (fd_ >= 0)
      (void)::close(fd_);  // what was written has been forced to disk, with its errors
  }

  operator int() const { return fd_; }

private:
  int fd_;
};

void write_all(int file, Bytes bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      fail(path, "writing the copy failed");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

FileState to_state(const struct stat& s) {
  return {static_cast<std::int64_t>(s.st_dev),
      static_cast<std::int64_t>(s.st_ino),
      s.st_size,
      s.st_mtim.tv_sec,
      s.st_mtim.tv_nsec};
}

/// Before it was locked, another program may have renamed the copy to the file: writing on
/// would change that.
bool is_still(int file, const std::string& copy) {
  struct stat opened{}, named{};
  return ::fstat(file, &opened) == 0 && ::stat(copy.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// Two runs that write the same file would take each other's results away; the lock goes with the
/// process.
Descriptor open_copy(const std::string& path) {
  for (const std::string copy = copy_name(path);;) {
    Descriptor file(::open(copy.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (file < 0)
      fail(path, "its copy cannot be created");
    if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw std::runtime_error(
          fmt::format("{} cannot be written: another program is writing it", path));
    if (is_still(file, copy))
      return file;
  }
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InputError(
      fmt::format("{} is damaged or was changed after it was written: {}", path, what));
}

/// Options that keep the file in memory. The user gets our one sentence instead of HDF5's error
/// stack.
h5::Id memory_access() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(
      0);  // miniTaw compresses nothing, and no file is to make it load foreign code
  h5::Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "create file options");
  h5::check(H5Pset_fapl_core(access, std::size_t{256} << 10, false), "keep a file in memory");
  return access;
}

/// HDF5 tells open files apart by name, also those that are never on disk.
std::string unique_name() {
  static std::atomic<unsigned> count = 0;
  return fmt::format("minitaw-{}", count++);
}

/// Throws InputError unless a file of this size, which begins so, has the schema of this program
/// and the length that its seal says.
void require_length(Bytes front, std::size_t size, const std::string& path) {
  const std::string seal(text_of(front.first(std::min(seal_size, front.size()))));
  long long schema = 0, length = -1;
  if (std::sscanf(seal.c_str(), "miniTaw result, schema %9lld, %18lld bytes", &schema, &length) < 1)
    throw InputError(fmt::format("{} is not a miniTaw result, or it is damaged", path));
  if (schema != schema_version)  // whatever follows
    throw InputError(fmt::format(
        "{} has schema version {}, this program reads {}; use the minitaw that wrote it, "
        "or name another file with -o",
        path,
        schema,
        schema_version));
  if (seal.size() < seal_size || length < 0)
    refuse(path, fmt::format("its seal, the first {} bytes, cannot be understood", seal_size));
  if (const std::size_t whole = static_cast<std::size_t>(length) + seal_size; size != whole)
    refuse(path,
        fmt::format(
            "{}, {} of {} bytes", size < whole ? "truncated" : "longer than it was", size, whole));
}

std::vector<std::byte> read_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw InputError(fmt::format("{} is not a file", path));
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  const std::size_t size = stream ? static_cast<std::size_t>(stream.tellg()) : 0;
  std::vector<std::byte> bytes(std::min(size, seal_size));
  const auto read = [&](std::size_t first) {
    stream.seekg(static_cast<std::streamoff>(first));
    if (!stream.read(reinterpret_cast<char*>(bytes.data() + first),
            static_cast<std::streamsize>(bytes.size() - first)))
      throw InputError(fmt::format("{} cannot be read ({})", path, std::strerror(errno)));
  };
  read(0);
  require_length(bytes, size, path);  // before a file that is no result is read as a whole
  bytes.resize(size);
  read(seal_size);
  return bytes;
}
}  // namespace

std::optional<FileState> state_of(const std::string& path) {
  struct stat s{};
  return ::stat(path.c_str(), &s) == 0 ? std::optional(to_state(s)) : std::nullopt;
}

std::string copy_name(const std::string& path) {
  return path + ".part";
}

FileState replace_file(
    const std::string& path, Bytes bytes, const std::optional<FileState>& expected) {
  const Descriptor file = open_copy(path);  // locked until it has its new name; whoever fails here
                                            // may not touch the copy: it is another program's
  struct stat old{}, written{};
  try {
    if (state_of(path) != expected)
      throw std::runtime_error(
          fmt::format("{} was changed by another program while this one was running", path));
    if (::ftruncate(file, 0) != 0)
      fail(path, "its copy cannot be emptied");
    // The new file is as private as the old one was.
    if (::stat(path.c_str(), &old) == 0)
      (void)::fchmod(file, old.st_mode & 07777);
    write_all(file, bytes, path);
    if (::fsync(file) != 0)
      fail(path, "forcing the copy to disk failed");
    if (::fstat(file, &written) != 0)
      fail(path, "its copy is gone");
    if (::rename(copy_name(path).c_str(), path.c_str()) != 0)
      fail(path, "renaming the copy failed");
  } catch (...) {
    (void)::unlink(copy_name(path).c_str());
    throw;
  }
  // A rename is on disk only when the folder is. Not every file system can do that for folders.
  const std::string name = std::filesystem::path(path).parent_path().string();
  const Descriptor folder(
      ::open(name.empty() ? "." : name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder >= 0)
    (void)::fsync(folder);
  return to_state(written);
}

void remove_stale_copy(const std::string& path) {
  const std::string copy = copy_name(path);
  const Descriptor file(::open(copy.c_str(), O_WRONLY | O_CLOEXEC));
  // Somebody who holds the lock is alive and needs the copy.
  if (file < 0 || ::flock(file, LOCK_EX | LOCK_NB) != 0 || !is_still(file, copy))
    return;
  (void)::unlink(copy.c_str());
}

std::string make_seal(std::int64_t schema, Bytes image) {
  const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(image.data()), image.size());
  const auto line =
      fmt::format("miniTaw result, schema {}, {} bytes, crc32 {:08x}\n", schema, image.size(), crc);
  return fmt::format("{:<{}}\n", line, seal_size - 1);
}

Bytes unseal(Bytes file, const std::string& path) {
  require_length(file, file.size(), path);
  const Bytes image = file.subspan(seal_size);
  if (make_seal(schema_version, image) != text_of(file.first(seal_size)))
    refuse(path, "its checksum differs from the one in its seal");
  return image;
}

h5::Id new_file() {
  h5::Id file(H5Fcreate(unique_name().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, memory_access()),
      H5Fclose,
      "create a file in memory");
  h5::write_attribute(file, "format", one("minitaw"));
  h5::write_attribute(file, "schema", one(schema_version));
  return file;
}

h5::Id load_file(const std::string& path) {
  const std::vector<std::byte> content = read_file(path);
  const Bytes image = unseal(content, path);
  if (image.empty())
    throw InputError(fmt::format("{} is damaged: nothing follows its seal", path));
  const h5::Id access = memory_access();
  // HDF5 takes a copy; it asks for a pointer to what may be changed, but does not.
  h5::check(H5Pset_file_image(access, const_cast<std::byte*>(image.data()), image.size()),
      "take a file from memory");
  const hid_t id = H5Fopen(unique_name().c_str(), H5F_ACC_RDWR, access);
  if (id < 0)
    throw InputError(fmt::format("{} is damaged: HDF5 cannot open it", path));
  return {id, H5Fclose, "open a file in memory"};
}

std::vector<std::byte> bytes_of(hid_t file) {
  h5::check(H5Fflush(file, H5F_SCOPE_LOCAL), "flush the file");
  const ssize_t size = H5Fget_file_image(file, nullptr, 0);
  if (size < 0)
    throw std::runtime_error("HDF5 cannot tell the size of the file");
  std::vector<std::byte> bytes(seal_size + static_cast<std::size_t>(size));
  const std::span<std::byte> image = std::span(bytes).subspan(seal_size);
  if (H5Fget_file_image(file, image.data(), image.size()) != size)
    throw std::runtime_error("HDF5 cannot give out the file");
  const std::string seal = make_seal(schema_version, image);
  std::ranges::copy(std::as_bytes(std::span(seal)), bytes.begin());
  return bytes;
}
}  // namespace minitaw::record

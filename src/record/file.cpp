#include "record/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "record/read.hpp"

namespace minitaw::record {

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(fmt::format("{} cannot be written: {} ({})", path, what, std::strerror(errno)));
}

/// A file descriptor that closes itself.
class Descriptor {
public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) (void)::close(fd_);  // what was written has been forced to disk, with its errors
  }
  [[nodiscard]] int get() const { return fd_; }

private:
  int fd_;
};

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void write_all(const Descriptor& file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "writing the copy failed");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

/// Two runs that write the same file would take each other's results away; the lock goes with the process.
void lock(const Descriptor& file, const std::string& path) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  throw std::runtime_error(fmt::format("{} cannot be written: another program is writing it", path));
}

FileState to_state(const struct stat& s) {
  return {s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

FileState state_of(const Descriptor& file, const std::string& path) {
  struct stat s{};
  if (::fstat(file.get(), &s) != 0) fail(path, "its copy is gone");
  return to_state(s);
}

/// Between opening a copy and locking it another program may have put it in place of the file, or removed it:
/// who writes on would write into the file itself.
bool is_still(const Descriptor& file, const std::string& copy) {
  struct stat opened{}, named{};
  return ::fstat(file.get(), &opened) == 0 && ::stat(copy.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

Descriptor open_copy(const std::string& path) {
  const std::string copy = copy_name(path);
  for (;;) {
    Descriptor file(::open(copy.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (file.get() < 0) fail(path, "its copy cannot be created");
    lock(file, path);
    if (is_still(file, copy)) return file;
  }
}

/// The new file is as private as the old one was.
void keep_mode(const Descriptor& copy, const std::string& path) {
  struct stat old{};
  if (::stat(path.c_str(), &old) == 0) (void)::fchmod(copy.get(), old.st_mode & 07777);
}

void write_copy(const Descriptor& file, std::span<const std::byte> bytes, const std::string& path) {
  if (::ftruncate(file.get(), 0) != 0) fail(path, "its copy cannot be emptied");
  keep_mode(file, path);
  write_all(file, bytes, path);
  if (::fsync(file.get()) != 0) fail(path, "forcing the copy to disk failed");
}

/// A rename is on disk only when the folder is. Not every file system can do that for folders.
void sync_folder(const std::string& path) {
  const Descriptor folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)::fsync(folder.get());
}

/// As many bytes as there are, and no more than `size`.
std::vector<std::byte> read_all(const Descriptor& file, std::size_t size, const std::string& path) {
  std::vector<std::byte> bytes(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.get(), bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw InputError(fmt::format("{} cannot be read ({})", path, std::strerror(errno)));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

using Check = std::function<void()>;

FileState replace(const std::string& path, std::span<const std::byte> bytes, const Check& when_locked) {
  const Descriptor file = open_copy(path);  // locked until it has its new name; whoever fails here may not
                                            // touch the copy: it is another program's
  FileState state;
  try {
    when_locked();
    write_copy(file, bytes, path);
    state = state_of(file, path);
    if (::rename(copy_name(path).c_str(), path.c_str()) != 0) fail(path, "renaming the copy failed");
  } catch (...) {
    (void)::unlink(copy_name(path).c_str());
    throw;
  }
  sync_folder(path);
  return state;
}

}  // namespace

std::optional<FileState> state_of(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) return std::nullopt;
  return to_state(s);
}

std::vector<std::byte> read_file(const std::string& path) {
  const Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe does not hold us up
  if (file.get() < 0) throw InputError(fmt::format("{} cannot be read ({})", path, std::strerror(errno)));
  struct stat s{};
  if (::fstat(file.get(), &s) != 0 || !S_ISREG(s.st_mode))
    throw InputError(fmt::format("{} is not a file", path));
  try {
    return read_all(file, static_cast<std::size_t>(s.st_size), path);
  } catch (const std::bad_alloc&) {
    throw InputError(fmt::format("{} is too large for the memory of this machine", path));
  }
}

std::string copy_name(const std::string& path) { return path + ".part"; }

FileState replace_file(const std::string& path, std::span<const std::byte> bytes) {
  return replace(path, bytes, [] {});
}

FileState replace_file(const std::string& path, std::span<const std::byte> bytes,
                       const std::optional<FileState>& expected) {
  return replace(path, bytes, [&] {
    if (state_of(path) != expected)
      throw std::runtime_error(
          fmt::format("{} was changed by another program while this one was running", path));
  });
}

void remove_stale_copy(const std::string& path) {
  const std::string copy = copy_name(path);
  const Descriptor file(::open(copy.c_str(), O_WRONLY | O_CLOEXEC));
  // Somebody who holds the lock is alive and needs the copy.
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !is_still(file, copy)) return;
  (void)::unlink(copy.c_str());
}

// The seal.

namespace {

constexpr std::string_view words = "miniTaw result, schema ";

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::uint32_t crc32_of(Bytes bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<z_size_t>(bytes.size())));
}

std::string seal_text(std::int64_t schema, std::uint64_t length, std::uint32_t crc) {
  const std::string line = fmt::format("{}{}, {} bytes, crc32 {:08x}\n", words, schema, length, crc);
  return fmt::format("{:<{}}\n", line, seal_size - 1);
}

/// Takes a number, and the words that follow it, off the front of the text; nothing if they are not there.
template <class T>
std::optional<T> take(std::string_view& text, std::string_view after, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.starts_with(after)) return std::nullopt;
  text.remove_prefix(after.size());
  return value;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InputError(fmt::format("{} is damaged or was changed after it was written: {}", path, what));
}

void require_words(Bytes file, const std::string& path) {
  constexpr std::string_view hdf5 = "\x89HDF\r\n\x1a\n";
  if (text_of(file).starts_with(words)) return;
  for (const std::size_t begin : {std::size_t{0}, seal_size})
    if (file.size() > begin && text_of(file.subspan(begin)).starts_with(hdf5))
      refuse(path, fmt::format("it has lost its seal, the first {} bytes", seal_size));
  throw InputError(fmt::format("{} is not a miniTaw result, or it is damaged", path));
}

}  // namespace

std::string make_seal(std::int64_t schema, Bytes image) {
  return seal_text(schema, image.size(), crc32_of(image));
}

Bytes unseal(Bytes file, const std::string& path) {
  require_words(file, path);
  const std::string_view seal = text_of(file.first(std::min(seal_size, file.size())));
  std::string_view left = seal.substr(words.size());
  const auto schema = take<std::int64_t>(left, "");
  if (schema && *schema != schema_version)  // whatever follows
    throw InputError(
        fmt::format("{} has schema version {}, this program reads {}; use the minitaw that wrote it, "
                    "or name another file with -o",
                    path, *schema, schema_version));
  left.remove_prefix(std::min<std::size_t>(2, left.size()));
  const auto length = take<std::uint64_t>(left, " bytes, crc32 ");
  const auto crc = take<std::uint32_t>(left, "\n", 16);
  // Made again, it has to be the same to the last space.
  if (!schema || !length || !crc || seal_text(*schema, *length, *crc) != seal)
    refuse(path, fmt::format("its seal, the first {} bytes, cannot be understood", seal_size));
  const Bytes image = file.subspan(seal_size);
  if (image.size() != *length)
    refuse(path,
           fmt::format("{}, {} of {} bytes", image.size() < *length ? "truncated" : "longer than it was",
                       file.size(), *length + seal_size));
  if (crc32_of(image) != *crc) refuse(path, "its checksum differs from the one in its seal");
  return image;
}

// The file in memory.

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

h5::Id open_bytes(Bytes bytes, const std::string& path) {
  const h5::Id access = memory_access();
  // HDF5 takes a copy; it asks for a pointer to what may be changed, but does not.
  h5::check(H5Pset_file_image(access.get(), const_cast<std::byte*>(bytes.data()), bytes.size()),
            "take a file from memory");
  const hid_t id = bytes.empty() ? -1 : H5Fopen(unique_name().c_str(), H5F_ACC_RDWR, access.get());
  if (id < 0) throw InputError(fmt::format("{} is damaged: HDF5 cannot open it", path));
  return {id, H5Fclose, "open a file in memory"};
}

}  // namespace

MemoryFile MemoryFile::create() {
  h5::silence();
  const h5::Id access = memory_access();
  h5::Id file(H5Fcreate(unique_name().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose,
              "create a file in memory");
  h5::write_attribute(file.get(), "format", std::string(format_name));
  h5::write_attribute(file.get(), "schema", schema_version);
  return MemoryFile(std::move(file));
}

MemoryFile MemoryFile::load(const std::string& path) {
  h5::silence();
  const std::vector<std::byte> content = read_file(path);
  const Bytes image = unseal(content, path);
  return reading(path, [&] {
    h5::Id file = open_bytes(image, path);
    if (h5::read_text_attribute(file.get(), "format") != format_name ||
        h5::read_attribute(file.get(), "schema") != schema_version)
      throw InputError(fmt::format("{} is an HDF5 file, but not a miniTaw result", path));
    return MemoryFile(std::move(file));
  });
}

std::vector<std::byte> MemoryFile::bytes() const {
  h5::check(H5Fflush(file_.get(), H5F_SCOPE_LOCAL), "flush the file");
  const ssize_t size = H5Fget_file_image(file_.get(), nullptr, 0);
  if (size < 0) throw std::runtime_error("HDF5 cannot tell the size of the file");
  std::vector<std::byte> bytes(seal_size + static_cast<std::size_t>(size));
  const std::span<std::byte> image = std::span(bytes).subspan(seal_size);
  if (H5Fget_file_image(file_.get(), image.data(), image.size()) != size)
    throw std::runtime_error("HDF5 cannot give out the file");
  const std::string seal = make_seal(schema_version, image);
  std::ranges::copy(std::as_bytes(std::span(seal)), bytes.begin());
  return bytes;
}

}  // namespace minitaw::record

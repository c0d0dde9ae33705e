#include "record/disk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"

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

}  // namespace minitaw::record

#include "record/disk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
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
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { (void)close(); }
  [[nodiscard]] int get() const { return fd_; }
  /// Some file systems report a full disk only here.
  [[nodiscard]] bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

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
  fail(path, "another program is writing it");
}

void write_copy(const std::string& copy, std::span<const std::byte> bytes, const std::string& path) {
  Descriptor file(::open(copy.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0) fail(path, "its copy cannot be created");
  lock(file, path);
  if (::ftruncate(file.get(), 0) != 0) fail(path, "its copy cannot be emptied");
  write_all(file, bytes, path);
  if (::fsync(file.get()) != 0) fail(path, "forcing the copy to disk failed");
  if (!file.close()) fail(path, "closing the copy failed");
}

/// A rename is on disk only when the folder is. Not every file system can do that for folders.
void sync_folder(const std::string& path) {
  const Descriptor folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)::fsync(folder.get());
}

}  // namespace

std::optional<FileState> state_of(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) return std::nullopt;
  return FileState{s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), s.st_mtim.tv_sec,
                   s.st_mtim.tv_nsec};
}

std::vector<std::byte> read_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw InputError(fmt::format("{} is not a file", path));
  const auto size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(error ? 0 : size);
  if (error || !file ||
      !file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw InputError(fmt::format("{} cannot be read", path));
  return bytes;
}

std::string copy_name(const std::string& path) { return path + ".part"; }

void replace_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string copy = copy_name(path);
  try {
    write_copy(copy, bytes, path);
    if (::rename(copy.c_str(), path.c_str()) != 0) fail(path, "renaming the copy failed");
  } catch (...) {
    remove_stale_copy(path);
    throw;
  }
  sync_folder(path);
}

void remove_stale_copy(const std::string& path) {
  const std::string copy = copy_name(path);
  const Descriptor file(::open(copy.c_str(), O_WRONLY | O_CLOEXEC));
  // Somebody who holds the lock is alive and needs the copy.
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return;
  (void)::unlink(copy.c_str());
}

}  // namespace minitaw::record

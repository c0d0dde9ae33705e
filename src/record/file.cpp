// SPDX-License-Identifier: BSD-3-Clause
#include "record/file.hpp"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <mutex>
#include <sstream>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>
#include "base/error.hpp"
#include "topology/system.hpp"

namespace minitaw::record {
namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {
/// A file that this process has opened.
class Descriptor {
public:
  explicit Descriptor(int fd) : fd_(fd) {}

  Descriptor(const Descriptor&) = delete;

  ~Descriptor() {
    if (fd_ >= 0)
      (void)::close(fd_);  // what was written has been forced to disk, with its errors
  }

  operator int() const { return fd_; }

private:
  int fd_;
};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(
      fmt::format("{} cannot be written: {} ({})", path, what, std::strerror(errno)));
}

std::string copy_name(const std::string& path) {
  return path + ".part";
}

/// Writes the copy and gives it the name of the file.
void write_and_rename(const std::string& path, Bytes bytes) {
  const std::string name = copy_name(path);
  std::ofstream copy(name, std::ios::binary);
  if (!copy)
    fail(path, "its copy cannot be created");
  // The new file is as private as the old one was.
  std::error_code ignored;  // not every file system has permissions
  if (const fs::file_status old = fs::status(path, ignored); fs::exists(old))
    fs::permissions(name, old.permissions(), ignored);
  copy.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  if (!copy.flush())
    fail(path, "writing the copy failed");
  const Descriptor written(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (::fsync(written) != 0)
    fail(path, "forcing the copy to disk failed");
  if (::rename(name.c_str(), path.c_str()) != 0)
    fail(path, "renaming the copy failed");
}

/// A program of this machine, or of another one.
struct Program {
  std::string host, process_space;
  int process = 0;
  std::string started;  ///< in clock ticks: numbers of processes are used again

  /// A line of a mark.
  std::string text() const {
    return fmt::format("{} {} {} {}", host, process_space, process, started);
  }
};

/// The time at which a process began, as /proc tells it; empty if it has ended.
std::string start_of(int process) {
  std::string stat = topology::line_of(fmt::format("/proc/{}/stat", process));
  std::istringstream words(stat.erase(0, stat.rfind(')') + 1));  // behind its name
  std::string state, word;
  constexpr int between = 18;
  words >> state;
  for (int i = 0; i < between; ++i)
    words >> word;
  words >> word;
  return state == "Z" ? "" : word;
}

Program this_program() {
  utsname system{};
  (void)::uname(&system);
  std::error_code error;
  const fs::path space = fs::read_symlink("/proc/self/ns/pid", error);
  const int process = ::getpid();
  return {system.nodename, error ? "-" : space.string(), process, start_of(process)};
}

// A mark is rewritten each 20 s, which other hosts may see a minute later.
constexpr auto refreshed_after = 20s;
constexpr auto young = 120s;

/// Throws InputError if the program that wrote this line into the mark of a result file may still
/// run.
void require_dead(const std::string& line, const std::string& path, const std::string& mark) {
  Program other;
  const Program mine = this_program();
  std::istringstream(line) >> other.host >> other.process_space >> other.process >> other.started;
  const auto name = other.started.empty()
                        ? "another program"
                        : fmt::format("process {} of the host {}", other.process, other.host);
  if (other.host == mine.host && other.process_space == mine.process_space) {
    if (start_of(other.process) == other.started)
      throw InputError("{} cannot be written: {} is writing it; wait for its end, or name another "
                       "file with -o",
          path,
          name);
    return;
  }
  std::error_code error;
  const auto age = fs::file_time_type::clock::now() - fs::last_write_time(mark, error);
  if (!error && age < young)
    throw InputError("{} cannot be written: {} was writing it less than {} s ago; wait for its "
                     "end, or name another file with -o; if it is dead, try again after {} s, or "
                     "remove {}",
        path,
        name,
        young.count(),
        young.count(),
        mark);
}

/// Makes a mark, or rewrites it, and forces it to disk: what was running stands there if this node
/// is lost. Returns whether it could be opened so.
bool write_mark(const std::string& name, int flags, const std::string& text) {
  const Descriptor mark(::open(name.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666));
  if (mark < 0)
    return false;
  // It is never empty: whoever reads it would not know whose it is.
  const ssize_t written = ::write(mark, text.data(), text.size());
  if (written >= 0 && ::ftruncate(mark, written) == 0)
    (void)::fsync(mark);
  return true;
}

/// Options of a file, in memory or on disk. The user gets our one sentence instead of HDF5's error
/// stack. No file makes HDF5 load foreign code; h5::require_sound() finds what leads elsewhere.
h5::Id file_access(bool in_memory) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
  h5::Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "create file options");
  if (in_memory)
    h5::require_success(
        H5Pset_fapl_core(access, std::size_t{256} << 10, false), "keep a file in memory");
  else
    h5::require_success(H5Pset_file_locking(access, false, true), "read a file without a lock");
  return access;
}

/// Nodes of chunk indices for columns of a few hundred runs; by default each takes 2 KiB.
h5::Id for_short_columns() {
  h5::Id options(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "create file options");
  constexpr unsigned half_of_chunks = 4;
  h5::require_success(H5Pset_istore_k(options, half_of_chunks), "choose an index");
  return options;
}

/// HDF5 tells open files apart by name, also those that are never on disk.
std::string unique_name() {
  static std::atomic<unsigned> count = 0;
  return fmt::format("minitaw-{}", count++);
}

std::string seal_text(std::size_t size, uLong checksum) {
  const auto line = fmt::format(
      "miniTaw result, schema {}, {} bytes, crc32 {:08x}\n", schema_version, size, checksum);
  return fmt::format("{:<{}}\n", line, seal_size - 1);
}

void require_schema(const std::string& seal, const std::string& path) {
  long long schema = 0;
  if (std::sscanf(seal.c_str(), "miniTaw result, schema %9lld", &schema) < 1)
    throw InputError("{} is not a miniTaw result, or it is damaged", path);
  if (schema != schema_version)
    throw InputError(
        "{} has schema version {}, this program reads {}; use the minitaw that wrote it, "
        "or name another file with -o",
        path,
        schema,
        schema_version);
}
}  // namespace

RunningMark::RunningMark(const std::string& path)
    : path_(path),
      name_(path + ".running"),
      mine_(this_program().text()) {
  take();
  (void)::unlink(copy_name(path).c_str());  // a program that was killed may have left it
  refresh_ = std::jthread([name = name_](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any ends;
    while (!ends.wait_for(lock, stop, refreshed_after, [&] { return stop.stop_requested(); }))
      (void)::utimensat(AT_FDCWD, name.c_str(), nullptr, 0);
  });
}

/// Programs that start at once may both take the mark of a dead one: the first finds out in set(),
/// before it has written a run.
void RunningMark::take() {
  while (!write_mark(name_, O_CREAT | O_EXCL, mine_ + '\n') && errno == EEXIST) {
    std::string first;
    std::ifstream mark(name_);
    std::getline(mark, first);
    if (first == mine_)
      return;
    require_dead(first, path_, name_);
    std::getline(mark, left_);
    if (::unlink(name_.c_str()) != 0 && errno != ENOENT)
      throw InputError(
          "{} cannot be written: {} is of a dead program, but it cannot be removed ({})",
          path_,
          name_,
          std::strerror(errno));
  }
}

void RunningMark::set(const std::string& identity) {
  take();
  write_mark(name_, 0, fmt::format("{}\n{}\n", mine_, identity));
}

void RunningMark::remove() {
  std::string first;
  std::getline(std::ifstream(name_), first);
  if (first == mine_)
    (void)::unlink(name_.c_str());
}

void replace_file(const std::string& path, Bytes bytes) {
  try {
    write_and_rename(path, bytes);
  } catch (...) {
    (void)::unlink(copy_name(path).c_str());
    throw;
  }
  // A rename is on disk only when the folder is. Not every file system can do that for folders.
  const std::string name = fs::path(path).parent_path().string();
  const Descriptor folder(
      ::open(name.empty() ? "." : name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder >= 0)
    (void)::fsync(folder);
}

std::string make_seal(Bytes image) {
  const auto* const begin = reinterpret_cast<const Bytef*>(image.data());
  return seal_text(image.size(), ::crc32_z(0, begin, image.size()));
}

std::string unseal(std::istream& file, const std::string& path, bool keeps) {
  std::string seal(seal_size, '\0');
  file.read(seal.data(), seal_size);
  require_schema(seal, path);  // before a file that is no result is read as a whole
  std::string image, block(std::size_t{1} << 20, '\0');
  std::size_t size = 0;
  uLong checksum = 0;
  while (file.read(block.data(), std::ssize(block)), file.gcount() > 0) {
    checksum = ::crc32_z(checksum, reinterpret_cast<const Bytef*>(block.data()), file.gcount());
    size += file.gcount();
    if (keeps)
      image.append(block, 0, file.gcount());
  }
  if (seal_text(size, checksum) != seal)
    throw InputError("{} is damaged or was changed after it was written: its length "
                     "or checksum is not that of its seal",
        path);
  return image;
}

h5::Id new_file() {
  h5::Id file(
      H5Fcreate(unique_name().c_str(), H5F_ACC_TRUNC, for_short_columns(), file_access(true)),
      H5Fclose,
      "create a file in memory");
  h5::set_attribute(file, "format", Cell("minitaw"));
  h5::set_attribute(file, "schema", Cell(schema_version));
  return file;
}

h5::Id load_file(const std::string& path, bool to_change) {
  if (fs::is_directory(path))
    throw InputError("{} is not a file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw InputError("{} cannot be read ({})", path, std::strerror(errno));
  const bool in_memory = to_change || !fs::is_regular_file(path);  // a pipe is read once
  std::string image = unseal(file, path, in_memory);
  const h5::Id access = file_access(in_memory);
  hid_t id = -1;
  if (!in_memory)
    id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  else if (H5Pset_file_image(access, image.data(), image.size()) >= 0)
    id = H5Fopen(unique_name().c_str(), H5F_ACC_RDWR, access);
  if (id < 0)
    throw InputError("{} is damaged: HDF5 cannot open it", path);
  return {id, H5Fclose, "open a file"};
}

std::vector<std::byte> bytes_of(hid_t file) {
  h5::require_success(H5Fflush(file, H5F_SCOPE_LOCAL), "flush the file");
  const ssize_t size = H5Fget_file_image(file, nullptr, 0);
  if (size < 0)
    throw std::runtime_error("HDF5 cannot tell the size of the file");
  std::vector<std::byte> bytes(seal_size + static_cast<std::size_t>(size));
  const std::span<std::byte> image = std::span(bytes).subspan(seal_size);
  if (H5Fget_file_image(file, image.data(), image.size()) != size)
    throw std::runtime_error("HDF5 cannot give out the file");
  const std::string seal = make_seal(image);
  std::ranges::copy(std::as_bytes(std::span(seal)), bytes.begin());
  return bytes;
}
}  // namespace minitaw::record

#include "record/archive.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"

namespace minitaw::record {

namespace {

using Reader = std::unique_ptr<archive, decltype(&archive_read_free)>;
using Writer = std::unique_ptr<archive, decltype(&archive_write_free)>;
using Entry = std::unique_ptr<archive_entry, decltype(&archive_entry_free)>;

/// 1980-01-01, the first day that every format of archives knows.
constexpr time_t fixed_time = 315532800;

std::string reason_of(archive* a) {
  const char* text = archive_error_string(a);
  return text == nullptr ? "no reason given" : text;
}

void check(int code, archive* a) {
  if (code != ARCHIVE_OK) throw std::runtime_error("libarchive: " + reason_of(a));
}

/// What libarchive hands out goes to the end of a string. No exception may cross its C code.
la_ssize_t append(archive*, void* to, const void* bytes, std::size_t count) {
  try {
    static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), count);
    return static_cast<la_ssize_t>(count);
  } catch (const std::exception&) {
    return -1;
  }
}

void write_member(archive* a, const Member& member) {
  const Entry entry(archive_entry_new(), archive_entry_free);
  archive_entry_set_pathname(entry.get(), member.name.c_str());
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_mtime(entry.get(), fixed_time, 0);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(member.content.size()));
  check(archive_write_header(a, entry.get()), a);
  const la_ssize_t written = archive_write_data(a, member.content.data(), member.content.size());
  if (written != static_cast<la_ssize_t>(member.content.size()))
    throw std::runtime_error("libarchive: " + reason_of(a));
}

void require_room(const std::vector<Member>& members) {
  std::size_t bytes = 0;
  for (const Member& member : members) bytes += member.content.size();
  if (bytes > most_archive_bytes || members.size() > most_archive_members)
    throw InputError(
        fmt::format("{} files of {} bytes are too many for a bundle: it holds at most {} files and {} bytes",
                    members.size(), bytes, most_archive_members, most_archive_bytes));
}

Reader open_reader(std::string_view archive, const std::string& path) {
  Reader reader(archive_read_new(), archive_read_free);
  check(archive_read_support_filter_gzip(reader.get()), reader.get());
  check(archive_read_support_format_tar(reader.get()), reader.get());
  if (archive_read_open_memory(reader.get(), archive.data(), archive.size()) != ARCHIVE_OK)
    throw InputError(fmt::format("{} is not a tar.gz archive, or it is damaged", path));
  return reader;
}

/// The content of the entry that the reader stands at; nothing if it is longer than `most` bytes.
std::optional<std::string> read_content(archive* a, std::size_t most, const std::string& path) {
  std::string content;
  std::array<char, 1 << 16> piece;
  for (;;) {
    const la_ssize_t count = archive_read_data(a, piece.data(), piece.size());
    if (count < 0) throw InputError(fmt::format("{} is damaged: {}", path, reason_of(a)));
    if (count == 0) return content;
    if (static_cast<std::size_t>(count) > most - content.size()) return std::nullopt;
    content.append(piece.data(), static_cast<std::size_t>(count));
  }
}

/// The next entry; nullptr at the end.
archive_entry* next_entry(archive* a, const std::string& path) {
  archive_entry* entry = nullptr;
  const int code = archive_read_next_header(a, &entry);
  if (code == ARCHIVE_EOF) return nullptr;
  if (code != ARCHIVE_OK) throw InputError(fmt::format("{} is damaged: {}", path, reason_of(a)));
  return entry;
}

std::string safe_name(archive_entry* entry, const std::string& path) {
  const char* name = archive_entry_pathname(entry);
  const bool file = archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
  if (!file || name == nullptr || !is_safe_name(name))
    throw InputError(
        fmt::format("{} holds something that no bundle does: a link, or a file with an unsafe name", path));
  return name;
}

}  // namespace

std::string why_no_archives() { return {}; }

std::string pack(std::vector<Member> members) {
  require_room(members);
  std::ranges::sort(members, {}, &Member::name);
  std::string bytes;
  const Writer writer(archive_write_new(), archive_write_free);
  check(archive_write_add_filter_gzip(writer.get()), writer.get());
  check(archive_write_set_filter_option(writer.get(), "gzip", "timestamp", nullptr), writer.get());
  check(archive_write_set_format_ustar(writer.get()), writer.get());
  check(archive_write_set_bytes_in_last_block(writer.get(), 1), writer.get());  // no padding behind the end
  check(archive_write_open(writer.get(), &bytes, nullptr, append, nullptr), writer.get());
  for (const Member& member : members) write_member(writer.get(), member);
  check(archive_write_close(writer.get()), writer.get());
  return bytes;
}

std::vector<Member> unpack(std::string_view archive, const std::string& path, std::size_t most) {
  const Reader reader = open_reader(archive, path);
  std::vector<Member> members;
  std::set<std::string> names;
  std::size_t left = most, entries = 0;
  for (archive_entry* entry = next_entry(reader.get(), path); entry; entry = next_entry(reader.get(), path)) {
    if (++entries > most_archive_members)
      throw InputError(
          fmt::format("{} holds more than {} files; no bundle does", path, most_archive_members));
    if (archive_entry_filetype(entry) == AE_IFDIR) continue;
    const std::string name = safe_name(entry, path);
    if (!names.insert(name).second) throw InputError(fmt::format("{} holds {} twice", path, name));
    std::optional<std::string> content = read_content(reader.get(), left, path);
    if (!content)
      throw InputError(fmt::format("{} unpacks to more than {} bytes; no bundle does", path, most));
    left -= content->size();
    members.push_back({name, std::move(*content)});
  }
  return members;
}

// An mtree archive lists the digests of its members and nothing else: libarchive's own way to SHA-256.
std::string sha256(std::string_view content) {
  std::string listing;
  const Writer writer(archive_write_new(), archive_write_free);
  check(archive_write_set_format_mtree(writer.get()), writer.get());
  check(archive_write_set_options(writer.get(), "!all,sha256"), writer.get());
  check(archive_write_open(writer.get(), &listing, nullptr, append, nullptr), writer.get());
  write_member(writer.get(), {"x", std::string(content)});
  check(archive_write_close(writer.get()), writer.get());
  constexpr std::string_view key = "sha256digest=";
  const std::size_t at = listing.find(key);
  if (at == std::string::npos || listing.size() < at + key.size() + 64)
    throw std::runtime_error("libarchive was built without SHA-256");
  return listing.substr(at + key.size(), 64);
}

}  // namespace minitaw::record

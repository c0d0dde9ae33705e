#include "record/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/error.hpp"
#include "record/disk.hpp"
#include "record/read.hpp"
#include "record/read_provenance.hpp"
#include "record/table.hpp"
#include "record/write.hpp"

namespace minitaw::record {

namespace {

/// The first session's deck is deck.toml; a later one's that has not been seen before is deck-NNNN.toml.
void put_decks(std::vector<Member>& members, const std::vector<Provenance>& sessions) {
  std::vector<std::string> seen;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const std::string& deck = sessions[i].deck;
    if (std::ranges::find(seen, deck) != seen.end()) continue;
    seen.push_back(deck);
    members.push_back(
        {i == 0 ? "deck.toml" : fmt::format("deck-{}.toml", numbered(static_cast<int>(i))), deck});
  }
}

void put_added(std::vector<Member>& members, const std::vector<std::string>& added) {
  for (const std::string& path : added) {
    const std::string name = "added/" + std::filesystem::path(path).filename().string();
    if (!is_safe_name(name))
      throw InputError(
          fmt::format("--add: \"{}\" cannot be the name of a file in a bundle: it must end in a name of "
                      "printable ASCII characters without a backslash",
                      path));
    if (std::ranges::find(members, name, &Member::name) != members.end())
      throw InputError(fmt::format("--add: there is another {}; give {} another name", name, path));
    members.push_back({name, read_bounded(path)});
  }
}

}  // namespace

std::string read_bounded(const std::string& path) {
  std::error_code error;
  if (const auto size = std::filesystem::file_size(path, error); !error && size > most_archive_bytes)
    throw InputError(
        fmt::format("{} has {} bytes; no bundle holds more than {}", path, size, most_archive_bytes));
  const std::vector<std::byte> bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string sums_text(const std::vector<Member>& members) {
  std::vector<const Member*> sorted;
  for (const Member& member : members) sorted.push_back(&member);
  std::ranges::sort(sorted, {}, &Member::name);
  std::string text;
  for (const Member* member : sorted) text += fmt::format("{}  {}\n", sha256(member->content), member->name);
  return text;
}

std::string make_bundle(const std::string& path, const std::vector<std::string>& added) {
  if (const std::string reason = why_no_archives(); !reason.empty()) throw InputError(reason);
  std::vector<Member> members{{"record.h5", read_bounded(path)}};
  const Image image = Image::of(bytes_of(members.front().content), path);
  const std::vector<Row> rows = read_summary(image, path);
  const std::vector<Provenance> sessions = read_sessions(image, path);
  put_decks(members, sessions);
  members.push_back({"log.txt", log_text(sessions, read_logs(image, path))});
  members.push_back({"environment.txt", environment_text(sessions)});
  members.push_back({"summary.csv", to_csv(rows)});
  members.push_back({"summary.txt", whole_text(rows)});
  members.push_back({"README.txt", readme_text(rows, sessions)});
  put_added(members, added);
  members.push_back({std::string(sums_name), sums_text(members)});
  for (Member& member : members) member.name.insert(0, bundle_folder);
  return pack(std::move(members));
}

}  // namespace minitaw::record

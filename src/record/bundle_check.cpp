#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "record/bundle.hpp"
#include "record/read.hpp"
#include "record/read_provenance.hpp"

namespace minitaw::record {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InputError(fmt::format("{} is no bundle, is damaged or was changed: {}", path, what));
}

std::vector<Member> unpack_file(const std::string& path) {
  std::vector<Member> members = unpack(read_bounded(path), path);
  for (Member& member : members) {
    if (!member.name.starts_with(bundle_folder))
      refuse(path, fmt::format("{} is not in the folder {}", member.name, bundle_folder));
    member.name.erase(0, bundle_folder.size());
  }
  return members;
}

/// Takes the member out. Throws if there is none.
Member take(std::vector<Member>& members, std::string_view name, const std::string& path) {
  const auto found = std::ranges::find(members, name, &Member::name);
  if (found == members.end()) refuse(path, fmt::format("it holds no {}", name));
  Member member = std::move(*found);
  members.erase(found);
  return member;
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

/// Every file must stand in the list, and every line of the list for a file.
void check_sums(std::vector<Member>& members, const std::string& path) {
  const std::set<std::string> listed = lines_of(take(members, sums_name, path).content);
  for (const Member& member : members) {
    std::string line = sums_text({member});
    line.pop_back();  // the end of the line
    if (!listed.contains(line)) refuse(path, fmt::format("{} is not what {} says", member.name, sums_name));
  }
  if (listed.size() != members.size())
    refuse(path, fmt::format("{} has {} lines for {} files", sums_name, listed.size(), members.size()));
}

}  // namespace

Bundle read_bundle(const std::string& path) {
  if (const std::string reason = why_no_archives(); !reason.empty()) throw InputError(reason);
  std::vector<Member> members = unpack_file(path);
  check_sums(members, path);
  Bundle bundle;
  for (const Member& member : members) bundle.names.push_back(member.name);
  std::ranges::sort(bundle.names);
  const std::string inside = fmt::format("record.h5 in {}", path);
  const Image image = Image::of(bytes_of(take(members, "record.h5", path).content), inside);
  bundle.rows = read_summary(image, inside);
  bundle.sessions = read_sessions(image, inside);
  return bundle;
}

}  // namespace minitaw::record

#include "record/compare/side.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "record/read.hpp"
#include "record/read_provenance.hpp"

namespace minitaw::record::compare {

namespace {

/// Settings that are not part of the key.
constexpr std::array left_out = {"steps",     "warmup",    "repeats",    "dtype",
                                 "recompute", "attention", "transport",  "learning_rate",
                                 "seed",      "identity",  "group_count"};

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(", ", begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 2;
  }
  return parts;
}

/// Of "host, 4 threads" the first part or the second; of "device 0, NAME, 79.1 GiB, uuid" name and size,
/// because which of several equal devices it was does not matter.
std::string device_of(const std::string& text) {
  const std::vector<std::string> parts = parts_of(text);
  return parts.size() < 3 ? parts.front() : parts[1] + ", " + parts[2];
}

std::string threads_of(const std::string& text) {
  const std::vector<std::string> parts = parts_of(text);
  return parts.size() == 2 ? parts[1] : "";
}

/// What the ranks of a case have, without repetition.
template <class Part>
std::string of_ranks(const std::vector<std::string>& devices, std::int64_t ranks, const Part& part) {
  std::set<std::string> found;
  for (std::size_t r = 0; r < std::min(devices.size(), static_cast<std::size_t>(ranks)); ++r)
    found.insert(part(devices[r]));
  std::string text;
  for (const std::string& one : found) text += (text.empty() ? "" : " + ") + one;
  return text;
}

std::string nodes_of(const Provenance& p, std::int64_t ranks) {
  if (p.nodes.empty() && p.hosts.empty()) return "";
  std::vector<std::string> nodes = p.hosts;  // older files tell nodes apart by their hosts
  if (!p.nodes.empty()) nodes.clear();
  for (const int node : p.nodes) nodes.push_back(fmt::format("{}", node));
  nodes.resize(std::min(nodes.size(), static_cast<std::size_t>(ranks)));
  return fmt::format("{}", std::set<std::string>(nodes.begin(), nodes.end()).size());
}

File read_file_of_side(const std::string& path) {
  const Image image = Image::load(path);
  File file{path, read_cases(image, path), read_sessions(image, path)};
  if (file.cases.empty()) throw InputError(fmt::format("{} holds no case", path));
  for (const StoredCase& stored : file.cases) {
    const std::int64_t session = stored.row.integer("session");
    if (session < 0 || session >= std::ssize(file.sessions))
      throw InputError(fmt::format("{} is damaged: case {} names session {}, which is not there", path,
                                   stored.row.integer("case"), session));
  }
  return file;
}

}  // namespace

const Provenance& File::provenance_of(const StoredCase& stored) const {
  return sessions.at(static_cast<std::size_t>(stored.row.integer("session")));
}

Side read_side(const std::vector<std::string>& paths) {
  Side side;
  for (const std::string& path : paths) side.push_back(read_file_of_side(path));
  return side;
}

const std::vector<std::string>& what_matters() {
  static const std::vector<std::string> names = {"dtype", "recompute",     "attention", "transport",
                                                 "seed",  "learning_rate", "device",    "processor",
                                                 "nodes", "build_type",    "threads",   "links"};
  return names;
}

std::string value_of(const std::string& name, const File& file, const StoredCase& stored) {
  const Provenance& p = file.provenance_of(stored);
  const std::int64_t ranks = stored.row.integer("ranks");
  if (name == "attention" || name == "transport") return stored.row.text(name + "_used");
  if (name == "device") return of_ranks(p.devices, ranks, device_of);
  if (name == "threads") return of_ranks(p.devices, ranks, threads_of);
  if (name == "processor") return of_ranks(p.cpu, ranks, [](const std::string& cpu) { return cpu; });
  if (name == "nodes") return nodes_of(p, ranks);
  if (name == "build_type") return p.build_type;
  if (name == "links") return p.links.empty() ? "not shaped" : fmt::format("{}", fmt::join(p.links, " "));
  return to_text(stored.row.cell(name));
}

std::string key_of(const Row& row) {
  std::string key;
  for (const Column& column : columns()) {
    if (!column.setting || std::ranges::find(left_out, column.name) != left_out.end()) continue;
    std::string value = to_text(row.cell(column.name));
    if (column.name == "replicas" && value == "0") value = "1";  // files from before there were any
    key += fmt::format("{}={} ", column.name, value);
  }
  return key;
}

std::string label_of(const Row& row) {
  return fmt::format(
      "{}, {} ranks in groups {}, {} tokens, B {}, M {}", row.text("schedule"),
      deck::ranks_text(static_cast<int>(row.integer("ranks")), static_cast<int>(row.integer("replicas"))),
      row.text("groups"), row.integer("seq"), row.integer("micro_batch"), row.integer("micro_batches"));
}

}  // namespace minitaw::record::compare

#include "record/read_provenance.hpp"

#include <algorithm>

#include "record/read.hpp"
#include "record/reading.hpp"
#include "record/write.hpp"

namespace minitaw::record {

namespace {

constexpr std::int64_t schema_of_libraries = 2;
constexpr std::int64_t schema_of_nodes = 4;  // and of logs

/// The first rank with the same host stands for the node; numbers follow the order of ranks.
std::vector<int> nodes_of(const std::vector<std::string>& hosts) {
  std::vector<std::string> seen;
  std::vector<int> nodes;
  for (const std::string& host : hosts) {
    const auto at = std::ranges::find(seen, host);
    nodes.push_back(static_cast<int>(at - seen.begin()));
    if (at == seen.end()) seen.push_back(host);
  }
  return nodes;
}

Provenance read_session(hid_t group, std::int64_t schema) {
  Provenance p;
  for (auto [name, text] : {std::pair{"version", &p.version},
                            {"git_hash", &p.git_hash},
                            {"build_type", &p.build_type},
                            {"compiler", &p.compiler},
                            {"compiler_flags", &p.compiler_flags},
                            {"kokkos", &p.kokkos},
                            {"mpi", &p.mpi},
                            {"nccl", &p.nccl},
                            {"cuda", &p.cuda},
                            {"driver", &p.driver},
                            {"started", &p.started},
                            {"command", &p.command},
                            {"deck_path", &p.deck_path},
                            {"deck", &p.deck}})
    *text = h5::read_text(group, name);
  p.overrides = h5::read_text_list(group, "overrides");
  p.environment = h5::read_text_list(group, "environment");
  p.hosts = h5::read_text_list(group, "hosts");
  p.devices = h5::read_text_list(group, "devices");
  if (schema >= schema_of_libraries) p.libraries = h5::read_text_list(group, "libraries");
  p.nodes = nodes_of(p.hosts);
  if (schema < schema_of_nodes) return p;
  const std::vector<std::int64_t> nodes = h5::read_integers(group, "nodes");
  p.nodes = {nodes.begin(), nodes.end()};
  p.cores = h5::read_text_list(group, "cores");
  if (h5::exists(group, "cpu")) p.cpu = h5::read_text_list(group, "cpu");
  if (h5::exists(group, "os")) p.os = h5::read_text_list(group, "os");
  if (h5::exists(group, "links")) p.links = h5::read_text_list(group, "links");
  return p;
}

/// What `read` makes of the group of each session, in order.
template <class Read>
auto read_each(const Image& image, const std::string& path, const Read& read) {
  return reading(path, [&] {
    const h5::Id first = h5::open_group(image.root(), "provenance");
    const h5::Id resumed = h5::open_group(first.get(), "resumed");
    std::vector<decltype(read(first.get()))> found = {read(first.get())};
    for (int number = 1; number < count_sessions(image); ++number)
      found.push_back(read(h5::open_group(resumed.get(), numbered(number)).get()));
    return found;
  });
}

}  // namespace

std::vector<Provenance> read_sessions(const Image& image, const std::string& path) {
  return read_each(image, path, [&](hid_t group) { return read_session(group, image.schema()); });
}

std::vector<std::string> read_git_hashes(const Image& image, const std::string& path) {
  return read_each(image, path, [](hid_t group) { return h5::read_text(group, "git_hash"); });
}

std::vector<std::vector<std::string>> read_logs(const Image& image, const std::string& path) {
  const auto read_log = [&](hid_t group) {
    return image.schema() < schema_of_nodes ? std::vector<std::string>() : h5::read_text_list(group, "log");
  };
  return read_each(image, path, read_log);
}

}  // namespace minitaw::record

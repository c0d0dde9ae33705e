// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>
#include "cli/cli11.hpp"
#include "job.hpp"

namespace minitaw::app {
namespace {
Json place_json(const MpiJob& mpi, const topology::RankPlace& place) {
  return {{"node", mpi.hosts.text(place.node)},
      {"cores", topology::cores_text(place.cores)},
      {"computes", place.unit},
      {"uuid", place.uuid},
      {"cpu", place.site.cpu},
      {"adapters", place.site.adapters}};
}

class Topo final : public JobVerb {
public:
  explicit Topo(CLI::App& app)
      : JobVerb(
            app, "topo", "print where the ranks of this job run; start it with mpiexec or srun") {
    add_json(command_, json_);
    command_.add_flag("--hosts", flags_.hosts, "print the names of the hosts");
  }

private:
  int work(const Invocation& invocation, MpiJob& mpi) override {
    return mpi.on_root([&] { return tell(invocation, mpi); });
  }

  int tell(const Invocation& invocation, const MpiJob& mpi) const {
    const topology::Groups& nodes = mpi.place.nodes;
    const std::vector<std::string> shaped = record::shaped_links();
    if (json_) {
      const auto place = [&](const topology::RankPlace& rank) { return place_json(mpi, rank); };
      write_json(invocation,
          {{"ranks", list_of(mpi.ranks, place)},
              {"groups", nodes.sizes()},
              {"adapters", mpi.adapters},
              {"shaped_links", shaped},
              {"remarks", mpi.remarks}});
    } else {
      write_stdout(fmt::format("{}# groups        = {}\n# adapters      = {} for each node\n{}",
          mpi.map_text(),
          nodes.text(),
          mpi.adapters,
          record::links_text(shaped)));
    }
    return 0;
  }

  bool json_ = false;
};
}  // namespace

std::unique_ptr<Verb> make_topo(CLI::App& app) {
  return std::make_unique<Topo>(app);
}
}  // namespace minitaw::app

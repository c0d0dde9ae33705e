// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "instruments.hpp"
#include "instruments/energy/energy.hpp"
#include "instruments/slowest/slowest.hpp"
#include "instruments/stalls/stalls.hpp"
#include "instruments/verbs.hpp"
#include "signals.hpp"

namespace minitaw::app {
namespace {
#ifdef MINITAW_HAVE_PREDICT
/// Goes on as the program beside this one that has SimGrid, whose 31 MiB no rank of a job needs.
[[noreturn]] void become_predictor(std::vector<char*> words) {
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "minitaw-predict";
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  throw InputError("{}: {}; it belongs beside minitaw: build the target verbs",
      program.string(),
      std::strerror(errno));
}
#endif
}  // namespace

void add_instruments(CLI::App& app, const Invocation& invocation, Verbs& verbs) {
#ifdef MINITAW_HAVE_PREDICT
  const std::vector<std::string> words = invocation.arguments();
  if (words.size() > 1 && words[1] == "predict")
    become_predictor({invocation.argv, invocation.argv + words.size()});
  app.add_subcommand("predict", predict_purpose);
#endif
  verbs.push_back(make_screen(app));
}

record::Remarks remarks() {
  return {slowest::remark()};
}

harness::Instruments make_instruments(const JobView& job) {
  // A device that several ranks share would count for each of them.
  energy::Meter meter(job.shared_devices ? "" : job.device_uuid);
  harness::Instruments all = {
      std::make_shared<stalls::Stalls>(
          MPI_COMM_WORLD, job.place.nodes, stalls::Stalls::Signals{caught_signal, pass_on_signal}),
      std::make_shared<energy::Energy>(std::move(meter), job.place.nodes)};
  if (!job.shared_devices && !job.crowded)
    all.push_back(std::make_shared<slowest::Comparison>(job.place.processors, job.places));
  return all;
}
}  // namespace minitaw::app

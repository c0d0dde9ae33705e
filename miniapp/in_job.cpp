#include "in_job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <string_view>

#include "base/error.hpp"
#include "engine/agree.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::app {

namespace {

/// Ends the process if the start or the end of MPI, for which no guard can speak, takes longer than this: a
/// rank of the job has stopped.
class Alarm {
public:
  explicit Alarm(double seconds) : seconds_(static_cast<unsigned>(std::clamp(std::ceil(seconds), 1.0, 1e6))) {
    std::signal(SIGALRM, end);
    start();
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm() { stop(); }
  void start() const { alarm(seconds_); }
  static void stop() { alarm(0); }

private:
  static void end(int) {
    constexpr std::string_view sentence =
        "minitaw: a rank of the job does not answer while MPI starts or ends\n";
    if (write(STDERR_FILENO, sentence.data(), sentence.size()) < 0) _exit(1);
    _exit(1);
  }
  unsigned seconds_;
};

/// Starts the alarm again where it goes out of scope.
struct StartAtEnd {
  const Alarm& alarm;
  ~StartAtEnd() { alarm.start(); }
};

int told_by_first(const MpiJob& mpi, const std::exception& error, int code) {
  if (mpi.speaks()) complain(error.what());
  return code;
}

}  // namespace

int in_job(const Invocation& invocation, const JobFlags& flags, const std::function<int(MpiJob&)>& work) {
  (void)topology::visible_devices();  // before MPI starts: a machine without its device ends here, plainly
  const Alarm alarm(flags.watchdog);  // outlives MPI
  MpiJob mpi(invocation.argc, invocation.argv, flags);
  Alarm::stop();
  const StartAtEnd before_mpi_ends{alarm};
  try {
    kernels::require_one_layout();
    mpi.require_own_devices();
    return work(mpi);
  } catch (const InputError& error) {
    return told_by_first(mpi, error, 2);
  } catch (const engine::AgreedError& error) {
    return told_by_first(mpi, error, 1);
  } catch (const std::exception& error) {
    complain(fmt::format("rank {}: {}", mpi.job().rank(), error.what()));
    throw;  // the environment's end stops the other ranks
  }
}

}  // namespace minitaw::app

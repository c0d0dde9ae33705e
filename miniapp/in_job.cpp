#include "in_job.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "engine/agree.hpp"

namespace minitaw::app {

namespace {

int told_by_first(const MpiJob& mpi, const std::exception& error, int code) {
  if (mpi.speaks()) complain(error.what());
  return code;
}

}  // namespace

int in_job(const Invocation& invocation, double watchdog, const std::function<int(MpiJob&)>& work) {
  MpiJob mpi(invocation.argc, invocation.argv, watchdog);
  try {
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

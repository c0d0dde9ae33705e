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

int in_job(const Invocation& invocation, const JobFlags& flags, const std::function<int(MpiJob&)>& work) {
  (void)topology::visible_devices();  // before MPI starts: a machine without its device ends here, plainly
  MpiJob mpi(invocation.argc, invocation.argv, flags);
  try {
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

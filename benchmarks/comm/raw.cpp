#include "kernels/kernels.hpp"
#include "mover.hpp"

namespace minitaw::bench {

std::unique_ptr<Mover> make_raw(const std::string& ours, const Places& places) {
#if defined(MINITAW_HAVE_NCCL)
  if (ours == "nccl") return make_raw_nccl(places);
#endif
  if (kernels::on_host || ours == "mpi direct") return make_raw_mpi(places);
  return nullptr;
}

}  // namespace minitaw::bench

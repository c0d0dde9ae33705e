#include "kernels/kernels.hpp"
#include "backend.hpp"

namespace minitaw::bench {

std::unique_ptr<Backend> make_raw(const std::string& ours, const Places& places) {
#if defined(MINITAW_HAVE_NCCL)
  if (ours == "nccl") return make_raw_nccl(places);
#endif
  if (kernels::on_host || ours == "mpi direct") return make_raw_mpi(places);
  return nullptr;
}

}  // namespace minitaw::bench

#include "comm/mpi/collectives.hpp"

namespace minitaw::comm::mpi {

void all_reduce(Channel& channel, const Ring& ring, const Buffer& buffer) {
  reduce_scatter(channel, ring, buffer);
  all_gather(channel, ring, buffer);
}

}  // namespace minitaw::comm::mpi

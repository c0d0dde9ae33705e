#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/transport.hpp"
#include "options.hpp"

namespace minitaw::bench {

/// A message: a buffer of elements, all of which move.
struct Size {
  std::string what;  ///< "shard of 1 block, H = 512"
  std::int64_t elements = 0;
  comm::Scalar scalar = comm::Scalar::fp32;
  topology::Groups groups{{1}};
  friend bool operator==(const Size& a, const Size& b) {
    return a.elements == b.elements && a.scalar == b.scalar && a.groups.sizes() == b.groups.sizes();
  }
};

/// Each once, groups together: the largest shard of every case of the deck that uses all ranks (weights and
/// gradients travel in the compute type, so they are equally long), or the bytes of the command line (in
/// fp32, rounded up). Throws InputError.
[[nodiscard]] std::vector<Size> sizes_of(const CommOptions& options, int ranks);

}  // namespace minitaw::bench

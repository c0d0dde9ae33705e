#pragma once

#include <vector>

#include "backend.hpp"

namespace minitaw::bench {

/// One operation at one place with one size.
struct Measured {
  Size size;
  std::string place;
  Operation operation = Operation::send;
  std::string backend, raw_backend;
  std::vector<double> ours, raw;  ///< seconds, the slowest rank's, by round; raw is empty where there is none
};

/// All operations at all places, each `rounds` times with ours and raw in turn, who is first changing from
/// round to round. Every measurement starts with the same contents and a barrier. Collective over
/// MPI_COMM_WORLD; the result is complete on all ranks. With options.verify the contents after the first
/// round are checked; throws Wrong on all ranks if they are not what they must be.
[[nodiscard]] std::vector<Measured> measure(const Size& size, const Places& places, Backend& ours, Backend* raw,
                                            const CommOptions& options);

/// An operation left wrong contents. On all ranks, with the words of the first one that has seen it.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace minitaw::bench

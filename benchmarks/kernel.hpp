#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shapes.hpp"

/// What timing and verifying know about a kernel. Without Kokkos: kernels come as functions.
namespace minitaw::bench {

/// Fewest FLOPs and bytes of one call: every input read once, every output written once, what it adds to
/// both. An exponential, a root and a division are one FLOP each.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// A kernel with memory to work on, which each of its functions owns.
struct Problem {
  std::function<void()> reset;    ///< inputs as given, outputs full of what is not a number
  std::function<void()> run;      ///< one call, asynchronous
  std::function<double()> error;  ///< after reset and one run: see Comparison; waits for the run
};

/// A kernel at one shape.
struct Kernel {
  std::string name;   ///< "linear/wqkv/fp32/forward"
  std::string shape;  ///< "T=512 in=512 out=1536": what the cost depends on
  model::Dtype dtype = model::Dtype::fp32;
  Cost cost;
  double tolerance = 0;             ///< largest error that is right
  std::function<Problem()> make{};  ///< allocates and fills
  std::string label{};              ///< name, with the shape behind it where a name has several
};
using Kernels = std::vector<Kernel>;

/// Every kernel at every shape; those that two shapes share once.
[[nodiscard]] Kernels kernels_of(const std::vector<Shape>& shapes);

}  // namespace minitaw::bench

#include "kernel.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "families.hpp"

namespace minitaw::bench {

namespace {

/// Without spaces, so that the label is one word of a command line.
std::string joined(std::string shape) {
  std::replace(shape.begin(), shape.end(), ' ', ',');
  return shape;
}

}  // namespace

Kernels kernels_of(const std::vector<Shape>& shapes) {
  Kernels all, distinct;
  for (const auto add :
       {add_linear, add_attention, add_rmsnorm, add_swiglu, add_rope, add_loss, add_embedding, add_updates})
    for (const Shape& shape : shapes) add(all, shape);
  std::set<std::string> seen;
  std::map<std::string, int> shapes_of_name;
  for (Kernel& kernel : all)
    if (seen.insert(kernel.name + " " + kernel.shape).second) {
      ++shapes_of_name[kernel.name];
      distinct.push_back(std::move(kernel));
    }
  for (Kernel& kernel : distinct)
    kernel.label = shapes_of_name[kernel.name] > 1 ? kernel.name + "/" + joined(kernel.shape) : kernel.name;
  return distinct;
}

}  // namespace minitaw::bench

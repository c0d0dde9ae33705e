#pragma once

#include <vector>

#include "model/layout.hpp"
#include "options.hpp"

namespace minitaw::bench {

/// A model of one block and the micro-batch that runs through it: what the shapes of all kernels follow from.
using Shape = model::Shape;

/// Those of the deck's cases, or else of the sizes given, each once. Throws InputError for a deck that cannot
/// be read and for sizes that cannot be computed.
[[nodiscard]] std::vector<Shape> shapes_of(const Options& options);

}  // namespace minitaw::bench

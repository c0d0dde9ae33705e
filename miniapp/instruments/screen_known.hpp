// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "instruments/screen/screening.hpp"
#include "job.hpp"

/// What `screen` knows of a machine before it measures.
namespace minitaw::app {
/// What the quantities are expected to be whose names begin so.
struct Expected {
  std::string quantity;
  screen::Known known;
};

/// Asks the hardware of each rank. Collective.
[[nodiscard]] std::vector<Expected> expected_by_hardware(const MpiJob& mpi, model::Dtype dtype);
/// What a machine file says of healthy parts. Throws InputError if it cannot be used, or has
/// exceptions.
[[nodiscard]] std::vector<Expected> expected_by_machine(
    const std::string& path, const model::Shape& shape, int ranks);
}  // namespace minitaw::app

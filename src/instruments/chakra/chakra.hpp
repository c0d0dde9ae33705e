// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include "schedule/simulate.hpp"

namespace minitaw::chakra {
/// Writes the program, which validate() accepts, as execution traces of MLCommons Chakra
/// (et_def.proto) with the attributes that its feeder and ASTRA-sim read:
/// <folder>/minitaw.<rank>.et. A node needs the one before it in its lane and what its action waits
/// for. `tensor_size` are the bytes of the buffers that local work reads and writes, `comm_tag` is
/// the index of the send in its rank's program, `comm_size` of a collective what one rank puts in,
/// `pg_name` the number of its communicator, from 1, in <folder>/comm_groups.json. Broadcast and
/// reduce, which ASTRA-sim does not execute, are messages along the chain of schedule::ring_send();
/// a collective has `ctrl_deps` on all transfers issued before it. Throws InputError.
void write_chakra(const schedule::Program& program,
    const model::Layout& layout,
    const schedule::Device& device,
    const std::vector<std::int64_t>& micro_batch_per_rank,
    const std::filesystem::path& folder);
}  // namespace minitaw::chakra

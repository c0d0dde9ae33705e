#pragma once

#include <hdf5.h>

namespace minitaw::record {

/// Reads every attribute and every dataset below a group, as far as they are of the kinds that miniTaw
/// writes. Throws std::runtime_error if something cannot be read, is larger than its file or lies outside of
/// it.
void read_everything(hid_t group);

}  // namespace minitaw::record

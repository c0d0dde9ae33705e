#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace minitaw::record {

/// Does work that may crash, hang or ask for any amount of memory, as HDF5 may over bytes that it did not
/// write, in a child process first, so that it is known to be harmless here. Nothing else of the child is
/// kept. Throws InputError with the message of an InputError of the child, or one that says that the file is
/// damaged if the child throws anything else, dies or comes to no end. Not for programs that have started
/// MPI: what their libraries have registered with a device does not outlive a fork everywhere.
void probe(const std::string& path, std::size_t bytes, const std::function<void()>& work);

}  // namespace minitaw::record

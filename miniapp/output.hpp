#pragma once

#include <string>

namespace minitaw::app {

/// Writes to standard output and makes sure that all of it arrives: data that are silently cut are worse than
/// none. Throws InputError if it cannot be written; a reader that has seen enough (head) is no error.
void put_out(const std::string& text);

}  // namespace minitaw::app

#pragma once

#include <string_view>

namespace minitaw {

/// What a result file says about the program that wrote it.
std::string_view version();

/// Commit of the sources, "-dirty" appended when they differ from it, "unknown" outside a git checkout.
std::string_view git_hash();

/// Compiler with its version, and the flags that change the code it makes.
std::string_view compiler();
std::string_view compiler_flags();

}  // namespace minitaw

#pragma once

#include <string_view>

/// What a result says about the program that wrote it.
namespace minitaw::build {

extern const std::string_view version;

/// Commit of the sources, "-dirty" appended when they differ from it, "unknown" outside a git checkout.
extern const std::string_view git_hash;

extern const std::string_view build_type;

/// Name and version, and the flags that change the code it makes.
extern const std::string_view compiler;
extern const std::string_view compiler_flags;

}  // namespace minitaw::build

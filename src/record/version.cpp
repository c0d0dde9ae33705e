// SPDX-License-Identifier: BSD-3-Clause
#include "minitaw_git_hash.hpp"
#include "record/provenance.hpp"

namespace minitaw::build {
constinit const std::string_view version = MINITAW_VERSION, git_hash = MINITAW_GIT_HASH;
constinit const std::string_view build_type = MINITAW_BUILD_TYPE, compiler = MINITAW_COMPILER;
constinit const std::string_view compiler_flags = MINITAW_COMPILER_FLAGS;
}  // namespace minitaw::build

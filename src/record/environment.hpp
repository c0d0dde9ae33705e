#pragma once

#include <optional>
#include <string>
#include <vector>

#include "record/host_names.hpp"

/// What a record keeps of the environment: variables that steer the run, and nothing that says who ran it,
/// where on disk, or on which hosts.
namespace minitaw::record {

/// Whether the variable is on the list: by its full name, or by a prefix whose variables all tune a library;
/// and never one that may hold a secret (..._TOKEN, ..._PASSWORD, ..._SECRET, ..._KEY).
[[nodiscard]] bool may_record(const std::string& name);

/// "NAME=value" as the record keeps it; nothing for a variable that is not on the list. The list cannot know
/// what values hold: in place of a value with a path, a user's name, or (unless names are shown) a host name
/// or network address, it says which of these was left out.
[[nodiscard]] std::optional<std::string> recorded(const std::string& name, const std::string& value,
                                                  const HostNames& hosts);

/// All that is kept of this process's environment, sorted.
[[nodiscard]] std::vector<std::string> recorded_environment(const HostNames& hosts);

/// What scripts/cluster says of the links between its nodes: "nodes=3", "rate=100mbit", ...; empty: they are
/// as they are. Words that are not of this form are left out.
[[nodiscard]] std::vector<std::string> shaped_links();
/// "# links         = shaped, rate=100mbit ...\n"; nothing where they are not.
[[nodiscard]] std::string links_text(const std::vector<std::string>& links);

}  // namespace minitaw::record

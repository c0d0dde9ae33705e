// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <istream>
#include <span>
#include <string>

/// Processor and operating system of a rank, from Linux's own files; "unknown" where they do not say.
namespace minitaw::topology {
/// "0-3,8" of ascending numbers; "none" of no numbers.
[[nodiscard]] std::string ranges_text(std::span<const int> numbers);

/// "AMD EPYC 9654 96-Core Processor, 2 sockets, 192 cores, 384 threads", of the whole node.
[[nodiscard]] std::string cpu_text();
/// "Linux 6.12.43+deb13-amd64 x86_64, Debian GNU/Linux 13 (trixie)". Without the host's name.
[[nodiscard]] std::string os_text();

/// Network adapters that messages to other nodes can share: active ports of InfiniBand or RoCE; 1 where there
/// are none, and on the nodes of scripts/cluster.
[[nodiscard]] int network_adapters();

/// From /proc/cpuinfo, /sys/devices/system/cpu, /etc/os-release, /sys/class/infiniband; tests have others.
[[nodiscard]] std::string cpu_model(std::istream& cpuinfo);
[[nodiscard]] std::string cpu_counts(const std::string& folder);
[[nodiscard]] std::string distribution(std::istream& os_release);
[[nodiscard]] int active_ports(const std::string& folder);

/// Throws InputError if MPI knows only one rank but the launcher has started several as one job: srun and the
/// MPI library do not speak the same PMI, and each rank would run the whole deck.
void require_launched_together(int ranks);
}  // namespace minitaw::topology

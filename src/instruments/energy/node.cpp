// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fmt/ranges.h>
#include <fstream>
#include <optional>
#include <utility>
#include "base/error.hpp"
#include "instruments/energy/meter.hpp"
#include "topology/system.hpp"

namespace minitaw::energy {
namespace {
namespace fs = std::filesystem;
using topology::line_of;
using Clock = std::chrono::steady_clock;

/// A file that begins with a number.
struct Counter {
  fs::path file;
  double unit;       ///< J or W
  double range = 0;  ///< after which it begins at 0 again; 0: it never does
  double last = 0;   ///< its number when it was last read
  double sum = 0;    ///< by which it has risen so far
};

/// A file that cannot be read any more makes the meter unavailable.
class NodeMeter final : public Meter {
public:
  explicit NodeMeter(const NodeFolders& folders)
      : folders_(folders),
        freshness_(fs::path(folders.cray) / "freshness") {
    add_cray();
    if (energy_.empty())
      add_rapl();
    if (power_.empty())
      add_hwmon();
    if (energy_.empty() && power_.empty())
      fault_ = why_.empty() ? "the system shows no energy or power of the node" : why_;
    name_ = fmt::format("{}, divided evenly among the ranks of a node, {}",
        fmt::join(parts_, ", "),
        timed_reading());
  }

  /// Follows the energy, too, so that no counter begins again twice between two readings.
  DeviceSample read() override {
    (void)energy();
    return {none, none, none, total(power_, &Counter::last), throttle_unknown};
  }

  double energy() override {
    require_renewed();
    return total(energy_, &Counter::sum);
  }

private:
  std::optional<double> number(const fs::path& file) {
    errno = 0;
    std::ifstream stream(file);
    if (double value = 0; stream >> value)
      return value;
    why_ = fmt::format("{}: {}", file.string(), errno == 0 ? "not a number" : std::strerror(errno));
    return std::nullopt;
  }

  /// Reads counters and adds up what they have last said, or their sums; NaN without counters or
  /// with a fault.
  double total(std::vector<Counter>& counters, double Counter::* value) {
    double sum = 0;
    for (Counter& counter : counters) {
      const std::optional<double> now = fault_.empty() ? number(counter.file) : std::nullopt;
      if (!now && fault_.empty())
        fault_ = why_;
      counter.sum += now.value_or(0) - counter.last + (now < counter.last ? counter.range : 0);
      counter.last = now.value_or(0);
      sum += counter.*value * counter.unit;
    }
    return counters.empty() || !fault_.empty() ? none : sum;
  }

  void add(std::vector<Counter>& counters, const fs::path& file, double unit, double range = 0) {
    if (!fs::exists(file))
      return;
    if (const auto now = number(file))
      counters.push_back({file, unit, range, *now});
  }

  void add_cray() {
    add(energy_, fs::path(folders_.cray) / "energy", 1);
    add(power_, fs::path(folders_.cray) / "power", 1);
    if (!energy_.empty())
      parts_.emplace_back("energy and power of the node (pm_counters)");
  }

  /// The processors; their parts (intel-rapl:0:1), psys and what repeats them (intel-rapl-mmio:0)
  /// would count twice.
  void add_rapl() {
    std::error_code missing;
    std::size_t packages = 0;
    for (const auto& zone : fs::directory_iterator(folders_.powercap, missing)) {
      if (!zone.path().filename().string().starts_with("intel-rapl:") ||
          !line_of(zone.path() / "name").starts_with("package"))
        continue;
      ++packages;
      add(energy_,
          zone.path() / "energy_uj",
          1e-6,
          number(zone.path() / "max_energy_range_uj").value_or(0));
    }
    if (energy_.size() < packages)
      energy_.clear();  // a part of the node is not the node
    if (!energy_.empty())
      parts_.push_back(fmt::format("energy of {} (rapl)", counted(std::ssize(energy_), "package")));
  }

  /// ACPI's sensors at the board's supply; where they say what they are of (Grace), those of a
  /// whole module.
  void add_hwmon() {
    std::error_code missing;
    for (const auto& sensor : fs::directory_iterator(folders_.hwmon, missing))
      if (const std::string of = line_of(sensor.path() / "power1_oem_info");
          line_of(sensor.path() / "name") == "power_meter" &&
          (of.empty() || of.starts_with("Module")))
        add(power_, sensor.path() / "power1_average", 1e-6);
    if (!power_.empty())
      parts_.emplace_back("power of the node (hwmon)");
  }

  /// Cray's counters are renewed ten times a second, and count how often.
  void require_renewed() {
    if (!fault_.empty() || !fs::exists(freshness_))
      return;
    const auto now = number(freshness_);
    if (std::exchange(fresh_, now) != now)
      renewed_ = Clock::now();
    else if (Clock::now() - renewed_ > std::chrono::duration<double>(folders_.stale_seconds))
      fault_ = fmt::format("{} stands still", freshness_.string());
  }

  NodeFolders folders_;
  fs::path freshness_;
  std::optional<double> fresh_;
  Clock::time_point renewed_;
  std::vector<Counter> energy_, power_;
  std::vector<std::string> parts_;
  std::string why_;
};
}  // namespace

std::unique_ptr<Meter> make_node_meter(const NodeFolders& folders) {
  if (std::getenv("MINITAW_SHAPED_LINKS") != nullptr)
    return std::make_unique<Meter>("the nodes are parts of one machine");
  try {
    return std::make_unique<NodeMeter>(folders);
  } catch (const std::exception& error) {
    return std::make_unique<Meter>(error.what());
  }
}
}  // namespace minitaw::energy

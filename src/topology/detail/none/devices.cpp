#include "topology/devices.hpp"

namespace minitaw::topology {

std::vector<Device> visible_devices() { return {}; }
std::optional<DeviceMemory> device_memory() { return std::nullopt; }
std::string runtime_version() { return {}; }
std::string driver_version() { return {}; }

}  // namespace minitaw::topology

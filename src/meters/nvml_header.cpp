// Compiled where CUDA's headers are: what topology/nvml.hpp declares is what nvml.h says.
#include <nvml.h>

#include <type_traits>

#include "record/result.hpp"
#include "topology/nvml.hpp"

namespace minitaw::nvml {

static_assert(success == int{NVML_SUCCESS} && not_supported == int{NVML_ERROR_NOT_SUPPORTED} &&
              not_found == int{NVML_ERROR_NOT_FOUND} &&
              function_not_found == int{NVML_ERROR_FUNCTION_NOT_FOUND});
static_assert(clock_sm == int{NVML_CLOCK_SM} && clock_memory == int{NVML_CLOCK_MEM} &&
              sensor_die == int{NVML_TEMPERATURE_GPU});
static_assert(mig_enabled == NVML_DEVICE_MIG_ENABLE &&
              version_size >= NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE &&
              version_size >= NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE);
static_assert(record::throttled_by_heat_or_power ==
              (nvmlClocksThrottleReasonSwPowerCap | nvmlClocksThrottleReasonHwSlowdown |
               nvmlClocksThrottleReasonSwThermalSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown |
               nvmlClocksThrottleReasonHwPowerBrakeSlowdown));

// Enumerations travel as int, devices as pointers.
static_assert(sizeof(nvmlReturn_t) == sizeof(int) && sizeof(nvmlClockType_t) == sizeof(int) &&
              sizeof(nvmlTemperatureSensors_t) == sizeof(int) && sizeof(nvmlDevice_t) == sizeof(Device));

template <class Function, class... Args>
constexpr bool takes = std::is_same_v<Function, nvmlReturn_t(Args...)>;

static_assert(takes<decltype(nvmlInit_v2)> && takes<decltype(nvmlShutdown)>);
static_assert(std::is_same_v<decltype(nvmlErrorString), const char*(nvmlReturn_t)>);
static_assert(takes<decltype(nvmlSystemGetNVMLVersion), char*, unsigned> &&
              takes<decltype(nvmlSystemGetDriverVersion), char*, unsigned>);
static_assert(takes<decltype(nvmlDeviceGetHandleByUUID), const char*, nvmlDevice_t*>);
static_assert(takes<decltype(nvmlDeviceGetMigMode), nvmlDevice_t, unsigned*, unsigned*>);
static_assert(takes<decltype(nvmlDeviceGetClockInfo), nvmlDevice_t, nvmlClockType_t, unsigned*>);
static_assert(takes<decltype(nvmlDeviceGetPowerUsage), nvmlDevice_t, unsigned*>);
static_assert(takes<decltype(nvmlDeviceGetTotalEnergyConsumption), nvmlDevice_t, unsigned long long*>);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static_assert(takes<decltype(nvmlDeviceGetTemperature), nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*>);
static_assert(takes<decltype(nvmlDeviceGetCurrentClocksThrottleReasons), nvmlDevice_t, unsigned long long*>);
#pragma GCC diagnostic pop

}  // namespace minitaw::nvml

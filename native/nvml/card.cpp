// SPDX-License-Identifier: Apache-2.0
#include "nvml/answers.h"
#include "nvml/gen/api.h"

namespace millpond::nvml::api {

namespace {

constexpr unsigned kSensorOfGpu = 0;
constexpr unsigned kKindsOfClocks = 4;  // graphics, SM, memory, video
constexpr unsigned kCurrentClock = 0;
constexpr unsigned kIdsOfClocks = 4;
constexpr unsigned kMostFields = 4096;

// Numbers of fields, from nvml.h.
constexpr unsigned kNvlinkState = 165, kPowerAverage = 185, kPowerInstant = 186, kPowerCurrentLimit = 190;

Return clockOf(const std::optional<unsigned> (&clocks)[3], unsigned clock, unsigned& megahertz) {
  if (clock >= kKindsOfClocks) return kInvalidArgument;
  return clock < std::size(clocks) ? known(clocks[clock], megahertz) : kNotSupported;
}

/// `scope`: number of the link, for fields of a link.
Return fieldOf(const Gpu& gpu, unsigned field, unsigned scope, unsigned& number) {
  switch (field) {
    case kNvlinkState: return deviceGetNvLinkState(gpu, scope, number);
    case kPowerAverage:
    case kPowerInstant: return known(gpu.card.powerMilliwatts, number);
    case kPowerCurrentLimit: return known(gpu.card.powerLimitMilliwatts, number);
    default: return kNotSupported;
  }
}

}  // namespace

Return deviceGetTemperature(const Gpu& device, unsigned sensor, unsigned& celsius) {
  return sensor == kSensorOfGpu ? known(device.card.temperatureCelsius, celsius) : kInvalidArgument;
}

Return deviceGetTemperatureV(const Gpu& device, Temperature& temperature) {
  if (temperature.version != versionOf<Temperature>(1)) return kVersionMismatch;
  unsigned celsius = 0;
  const Return result = deviceGetTemperature(device, temperature.sensor, celsius);
  if (result == kSuccess) temperature.celsius = static_cast<int>(celsius);
  return result;
}

Return deviceGetClockInfo(const Gpu& device, unsigned clock, unsigned& megahertz) {
  return clockOf(device.card.clocks, clock, megahertz);
}

Return deviceGetMaxClockInfo(const Gpu& device, unsigned clock, unsigned& megahertz) {
  return clockOf(device.card.maxClocks, clock, megahertz);
}

Return deviceGetClock(const Gpu& device, unsigned clock, unsigned which, unsigned& megahertz) {
  if (clock >= kKindsOfClocks || which >= kIdsOfClocks) return kInvalidArgument;
  return which == kCurrentClock ? clockOf(device.card.clocks, clock, megahertz) : kNotSupported;
}

Return deviceGetFieldValues(const Gpu& device, unsigned count, FieldValue& values) {
  if (count == 0 || count > kMostFields) return kInvalidArgument;
  FieldValue* const all = &values;
  for (unsigned i = 0; i < count; ++i) {
    FieldValue& value = all[i];
    value.atUs = device.atUs;
    value.tookUs = 0;
    value.type = ValueType::kUnsigned;
    value.value.longNumber = 0;
    value.result = fieldOf(device, value.field, value.scope, value.value.number);
  }
  return kSuccess;
}

Return gpmQueryDeviceSupport(const Gpu&, GpmSupport& support) {
  if (support.version != versionOf<GpmSupport>(1) && support.version != 1) return kVersionMismatch;
  support.isSupported = 0;
  return kSuccess;
}

}  // namespace millpond::nvml::api

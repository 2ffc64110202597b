// SPDX-License-Identifier: Apache-2.0
/** The GPU itself, about which only a claim with the whole GPU gets answers. */
import { hand, member, type NvmlGroup, out, same } from "./schema.ts";

export const card = {
  nvmlDeviceGetTemperature: hand({ device: "gpu", sensor: "number", celsius: out("unsigned") }),
  nvmlDeviceGetTemperatureV: hand({ device: "gpu", temperature: out("Temperature") }),
  nvmlDeviceGetPowerUsage: member("card.powerMilliwatts"),
  nvmlDeviceGetEnforcedPowerLimit: member("card.powerLimitMilliwatts"),
  nvmlDeviceGetPowerManagementLimit: same("nvmlDeviceGetEnforcedPowerLimit"),
  nvmlDeviceGetPerformanceState: member("card.performanceState"),
  nvmlDeviceGetPowerState: same("nvmlDeviceGetPerformanceState"),
  nvmlDeviceGetClockInfo: hand({ device: "gpu", clock: "number", megahertz: out("unsigned") }),
  nvmlDeviceGetMaxClockInfo: hand({ device: "gpu", clock: "number", megahertz: out("unsigned") }),
  nvmlDeviceGetClock: hand({ device: "gpu", clock: "number", which: "number", megahertz: out("unsigned") }),
  nvmlDeviceGetFieldValues: hand({ device: "gpu", count: "number", values: out("FieldValue") }),
} as const satisfies NvmlGroup;

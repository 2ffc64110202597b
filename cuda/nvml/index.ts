// SPDX-License-Identifier: Apache-2.0
/** NVIDIA's management library as data. */
import { card } from "./card.ts";
import { device } from "./device.ts";
import { modes } from "./modes.ts";
import type { NvmlGroup } from "./schema.ts";
import { system } from "./system.ts";
import { topology } from "./topology.ts";
import { use } from "./use.ts";

export { takesDevice, unsupported } from "./unsupported.ts";

/**
 * By group. The functions that begin and end the use of the library, and the hidden table of nvidia-smi, are written by hand.
 */
export const nvml = { system, device, use, card, modes, topology } satisfies Readonly<
  Record<string, NvmlGroup>
>;

// SPDX-License-Identifier: Apache-2.0
import type { Group } from "../schema.ts";
import { callbacks } from "./callback.ts";
import { arrays } from "./array.ts";
import { captures } from "./capture.ts";
import { context } from "./context.ts";
import { device } from "./device.ts";
import { events } from "./event.ts";
import { graphs } from "./graph.ts";
import { greenContexts } from "./green.ts";
import { init } from "./init.ts";
import { interop } from "./interop.ts";
import { launches } from "./launch.ts";
import { logs } from "./log.ts";
import { managed } from "./managed.ts";
import { memory } from "./memory.ts";
import { memoryPools } from "./memory-pool.ts";
import { module } from "./module.ts";
import { occupancy } from "./occupancy.ts";
import { peers } from "./peer.ts";
import { profiler } from "./profiler.ts";
import { streams } from "./stream.ts";
import { textureReferences } from "./texture-reference.ts";
import { tensorMaps } from "./tensor-map.ts";
import { virtualMemory } from "./virtual-memory.ts";

/** All groups of the driver API, in the order of generated files and pages. */
export const driver: { readonly [group: string]: Group } = {
  init,
  device,
  context,
  greenContexts,
  memory,
  virtualMemory,
  memoryPools,
  managed,
  arrays,
  textureReferences,
  peers,
  module,
  launch: launches,
  stream: streams,
  callback: callbacks,
  capture: captures,
  graph: graphs,
  event: events,
  occupancy,
  tensorMap: tensorMaps,
  profiler,
  logs,
  interop,
};

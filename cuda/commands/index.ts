// SPDX-License-Identifier: Apache-2.0
/**
 * The wire commands whose client and worker code is written by hand. Sizes and offsets are bytes, addresses are the worker's,
 * handles are the numbers that the client chose (`function` takes functions and kernels), `stream` is a stream's number or
 * one of the default streams. The context of a command is in its frame's header.
 *
 * Their order has no meaning: a command's number on the wire is its position among all commands by name. It changes when one
 * is added, and two ends with different commands refuse each other at the handshake.
 */
import type { Command } from "../schema.ts";
import { arrayCommands } from "./array.ts";
import { callbackCommands } from "./callback.ts";
import { captureCommands } from "./capture.ts";
import { contextCommands } from "./context.ts";
import { copyCommands } from "./copy.ts";
import { deviceCommands } from "./device.ts";
import { eventCommands } from "./event.ts";
import { graphCommands } from "./graph.ts";
import { graphExecCommands } from "./graph-exec.ts";
import { greenCommands } from "./green.ts";
import { hostMemoryCommands } from "./host-memory.ts";
import { launchCommands } from "./launch.ts";
import { linkCommands } from "./link.ts";
import { memoryCommands } from "./memory.ts";
import { memoryPoolCommands } from "./memory-pool.ts";
import { moduleCommands } from "./module.ts";
import { sessionCommands } from "./session.ts";
import { streamCommands } from "./stream.ts";
import { tensorMapCommands } from "./tensor-map.ts";
import { textureReferenceCommands } from "./texture-reference.ts";
import { userObjectCommands } from "./user-object.ts";
import { virtualMemoryCommands } from "./virtual-memory.ts";

export const commands: readonly Command[] = [
  ...sessionCommands,
  ...contextCommands,
  ...deviceCommands,
  ...memoryCommands,
  ...virtualMemoryCommands,
  ...memoryPoolCommands,
  ...hostMemoryCommands,
  ...copyCommands,
  ...arrayCommands,
  ...textureReferenceCommands,
  ...moduleCommands,
  ...linkCommands,
  ...launchCommands,
  ...tensorMapCommands,
  ...streamCommands,
  ...eventCommands,
  ...callbackCommands,
  ...captureCommands,
  ...graphCommands,
  ...graphExecCommands,
  ...userObjectCommands,
  ...greenCommands,
];

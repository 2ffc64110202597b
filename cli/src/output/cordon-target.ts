// SPDX-License-Identifier: Apache-2.0

import type { Connection } from "../connection/connection.ts";
import { findOne } from "./find.ts";
import { deviceKind } from "./kinds.ts";

/** Reads the target of `cordon`: `node-a` is a node, `node-a/3` one of its devices. */
export async function cordonTarget(
  connection: Connection,
  target: string,
): Promise<{ readonly kind: "node" | "device"; readonly name: string; readonly deviceUuid: string }> {
  if (!target.includes("/")) return { kind: "node", name: target, deviceUuid: "" };
  const { node, uuid } = await findOne(deviceKind, connection, target);
  return { kind: "device", name: node, deviceUuid: uuid };
}

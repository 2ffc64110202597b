// SPDX-License-Identifier: Apache-2.0

import {
  type Device,
  DeviceHealth,
  formatBytes,
  type Node,
  NodeState,
  type Session,
  SessionState,
} from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { drawBox } from "../../output/box.ts";
import { cudaVersion } from "../../output/columns.ts";

export async function run(values: Values<"smi">): Promise<number> {
  const connection = openConnection(values);
  const [{ nodes }, { sessions }, { version }] = await Promise.all([
    connection.pool.listNodes({}),
    connection.pool.listSessions({}),
    connection.pool.getVersion({}),
  ]);
  process.stdout.write(renderSmi({ nodes, sessions, version, controller: connection.controller }));
  return exitStatus.ok;
}

export interface SmiPicture {
  readonly nodes: readonly Node[];
  readonly sessions: readonly Session[];
  /** Version of the controller. */
  readonly version: string;
  readonly controller: string;
}

/** Renders the picture: devices, and the sessions that use them. */
export function renderSmi({ nodes, sessions, version, controller }: SmiPicture): string {
  const devices = nodes.flatMap((node) => node.devices.map((device) => ({ node, device })));
  const counts = [
    count(nodes.length, "node"),
    count(devices.length, "device"),
    count(sessions.length, "session"),
  ].join(", ");
  return drawBox(
    [`Millpond ${version}   ${controller}`, counts],
    [
      {
        titles: [
          "Device",
          "Name",
          "CUDA",
          "vGPUs",
          "Compute granted",
          "Memory used / granted / total",
          "State",
        ],
        isRight: [false, false, true, true, true, true],
        rows: devices.map(({ node, device }) => [
          `${device.node}/${device.index}`,
          device.name,
          cudaVersion(device.cudaVersion),
          String(device.virtualGpus),
          `${device.allocatedComputePercent}%`,
          [device.usedMemoryBytes, device.allocatedMemoryBytes, device.memoryBytes]
            .map(formatBytes)
            .join(" / "),
          stateOf(node, device),
        ]),
        emptyText: "No device: no agent has joined the pool",
      },
      {
        titles: ["Device", "PID", "Program", "Claim", "Via", "Compute", "Memory used / limit"],
        isRight: [false, true, false, false, false, true, true],
        rows: sessions.flatMap((session) =>
          session.devices.map((device) => [
            `${session.node}/${device.index}`,
            session.clientPid === 0 ? "-" : String(session.clientPid),
            programOf(session),
            session.claim,
            session.transport === "" ? "-" : session.transport,
            `${device.granted?.computePercent ?? 0}%`,
            `${formatBytes(device.memoryUsedBytes)} / ${formatBytes(device.granted?.memoryBytes ?? 0n)}`,
          ]),
        ),
        emptyText: "No running sessions found",
      },
    ],
  );
}

function programOf(session: Session): string {
  const program = session.program === "" ? "-" : session.program;
  return session.state === SessionState.CONNECTED ? program : `${program} (${phaseOf(session.state)})`;
}

function phaseOf(state: SessionState): string {
  return state === SessionState.CLOSING ? "ending" : "starting";
}

function stateOf(node: Node, device: Device): string {
  if (node.state !== NodeState.READY) return "Node not ready";
  if (device.health !== DeviceHealth.HEALTHY) return "Unhealthy";
  return node.cordoned || device.cordoned ? "Cordoned" : "OK";
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

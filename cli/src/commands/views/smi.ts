// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import {
  countOf,
  type Device,
  DeviceHealth,
  formatBytes,
  millpondError,
  type Node,
  NodeState,
  type Session,
  SessionState,
} from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { drawBox } from "../../output/box.ts";
import { cudaVersion, power, temperature } from "../../output/columns.ts";
import { parseDeviceQuery, renderDeviceList, renderDeviceQuery } from "../../output/device-query.ts";
import { nodeToJson, renderObject, renderObjectLine, sessionToJson } from "../../output/resources.ts";

export async function run(values: Values<"smi">): Promise<number> {
  const render = chooseRendering(values);
  const connection = openConnection(values);
  process.stdout.write(await render(connection));
  while (values.loop !== undefined) {
    // The signals that end a loop have their default effect, because nothing has to be released.
    await delay(values.loop * 1000);
    process.stdout.write(await render(connection));
  }
  return exitStatus.ok;
}

/** @throws MILLPOND_E_INVALID for options that exclude each other, before the first call */
function chooseRendering(values: Values<"smi">): (connection: Connection) => Promise<string> {
  const { list, output, queryGpu, format } = values;
  const isJson = output === "json";
  const chosen = [list && "--list", isJson && "-o json", queryGpu !== undefined && "--query-gpu"].filter(
    (option) => option !== false,
  );
  if (chosen.length > 1) {
    throw millpondError("MILLPOND_E_INVALID", `${chosen.join(" and ")} are given`, {
      remedy: "Give one of them.",
    });
  }
  if (format !== undefined && queryGpu === undefined) {
    throw millpondError("MILLPOND_E_INVALID", "--format is for --query-gpu");
  }
  if (list) return async ({ pool }) => renderDeviceList((await pool.listNodes({})).nodes);
  if (queryGpu !== undefined) {
    const query = parseDeviceQuery(queryGpu, format ?? ["csv"]);
    // In a loop the titles would appear among the values.
    let isFirst = true;
    return async ({ pool }) => {
      const { nodes } = await pool.listNodes({});
      const text = renderDeviceQuery({ ...query, hasHeader: query.hasHeader && isFirst }, nodes);
      isFirst = false;
      return text;
    };
  }
  const show = isJson ? (values.loop === undefined ? renderObject : renderObjectLine) : undefined;
  return async (connection) => {
    const picture = await takePicture(connection);
    return show === undefined ? renderSmi(picture) : show("Smi", smiToJson(picture));
  };
}

async function takePicture(connection: Connection): Promise<SmiPicture> {
  const [{ nodes }, { sessions }, { version }] = await Promise.all([
    connection.pool.listNodes({}),
    connection.pool.listSessions({}),
    connection.pool.getVersion({}),
  ]);
  return { nodes, sessions, version, controller: connection.controller };
}

function smiToJson({ nodes, sessions, version, controller }: SmiPicture) {
  return { version, controller, nodes: nodes.map(nodeToJson), sessions: sessions.map(sessionToJson) };
}

export interface SmiPicture {
  readonly nodes: readonly Node[];
  readonly sessions: readonly Session[];
  /** Version of the controller. */
  readonly version: string;
  readonly controller: string;
}

/** Renders the table: devices, and the sessions that use them. */
export function renderSmi({ nodes, sessions, version, controller }: SmiPicture): string {
  const devices = nodes.flatMap((node) => node.devices.map((device) => ({ node, device })));
  // Drivers of software GPUs report no version.
  const hasCards = devices.some(({ device }) => device.card !== undefined);
  const counts = [
    countOf(nodes.length, "node"),
    countOf(devices.length, "device"),
    countOf(sessions.length, "session"),
  ].join(", ");
  return drawBox(
    [`Millpond ${version}   ${controller}`, counts],
    [
      {
        titles: [
          "Device",
          "Name",
          "CUDA",
          ...(hasCards ? ["Temp", "Power"] : []),
          "vGPUs",
          "Compute used / granted",
          "Memory used / granted / total",
          "State",
        ],
        isRight: [false, false, true, ...(hasCards ? [true, true] : []), true, true, true],
        rows: devices.map(({ node, device }) => [
          `${device.node}/${device.index}`,
          device.name,
          cudaVersion(device.cudaVersion),
          ...(hasCards ? [temperature(device), power(device)] : []),
          String(device.virtualGpus),
          `${usedCompute(device.usedComputePercent)} / ${device.allocatedComputePercent}%`,
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

/** A percentage over the last seconds; `-` if unknown. */
function usedCompute(percent: number | undefined): string {
  return percent === undefined ? "-" : `${percent}%`;
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

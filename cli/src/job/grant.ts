// SPDX-License-Identifier: Apache-2.0
// What `millpond run -v` says about a claim's vGPUs: which devices they are, and how the program reaches them.

import { setTimeout as delay } from "node:timers/promises";
import { ConnectError } from "@connectrpc/connect";
import { type Claim, formatBytes, type Node, type Session } from "@millpond/api";
import { parseAgentUrl } from "@millpond/platform";
import type { Connection } from "../connection/connection.ts";
import { bootId } from "../host/boot-id.ts";
import { sessionDevices } from "../output/columns.ts";
import { findNode } from "../output/find.ts";

/** Programs connect soon after their start, or, like shells, perhaps never. */
const firstPollMs = 100;
const longestPollMs = 2000;
const askTimeoutMs = 5000;

/** The transports, by the words of `--transport`. */
type Transport = "shm" | "tcp";

const transportTexts: Readonly<Record<Transport, string>> = { shm: "shared memory", tcp: "TCP" };

export interface Grant {
  /** For display, without a full stop. */
  readonly text: string;
  /** The transport that it names; undefined: none, because there is no device yet. */
  readonly transport: Transport | undefined;
}

/**
 * Describes what the claim holds.
 *
 * @param asked the value of `--transport`
 */
export async function describeGrant(
  connection: Connection,
  claim: Claim,
  asked: string | undefined,
  signal: AbortSignal,
): Promise<Grant> {
  const { name, allocation, lazy } = claim;
  if (allocation === undefined) {
    const text = lazy ? `claim ${name} is dormant until its program calls CUDA` : `claim ${name} has nothing`;
    return { text, transport: undefined };
  }
  const node = await findNode(connection, allocation.node, signal);
  const devices = allocation.devices.map(({ uuid, memoryBytes, computePercent }) => {
    const index = node?.devices.find((device) => device.uuid === uuid)?.index;
    const device = index === undefined ? uuid : `${allocation.node}/${index}`;
    return `${device} (${formatBytes(memoryBytes)}, ${computePercent}% compute)`;
  });
  const transport = expectedTransport(node, asked);
  const encrypted = transport === "tcp" && isEncrypted(node) ? ", encrypted" : "";
  return {
    text: `claim ${name} has ${devices.join(", ")}, over ${transportTexts[transport]}${encrypted}`,
    transport,
  };
}

/** The client library uses shared memory on the GPU's own machine if it can, unless another transport is requested. */
function expectedTransport(node: Node | undefined, asked: string | undefined): Transport {
  if (asked === "shm" || asked === "tcp") return asked;
  return node?.bootId === bootId() ? "shm" : "tcp";
}

function isEncrypted(node: Node | undefined): boolean {
  return node !== undefined && parseAgentUrl(node.agentUrl).baseUrl.startsWith("https:");
}

/**
 * Reports sessions of a claim that do not use the expected transport, until `signal` is aborted.
 *
 * @param say receives each report, for display
 */
export async function watchTransports(
  { pool }: Connection,
  claim: string,
  expected: Transport,
  { signal, say }: { readonly signal: AbortSignal; readonly say: (text: string) => void },
): Promise<void> {
  const seen = new Set<string>();
  for (let pauseMs = firstPollMs; !signal.aborted; pauseMs = Math.min(longestPollMs, pauseMs * 2)) {
    try {
      await delay(pauseMs, undefined, { signal });
      const { sessions } = await pool.listSessions({ claim }, { signal, timeoutMs: askTimeoutMs });
      for (const session of sessions) {
        if (session.transport === "" || seen.has(session.id)) continue;
        seen.add(session.id);
        if (session.transport !== expected) say(describeTransport(session));
      }
    } catch (error) {
      if (signal.aborted) return;
      // The program does not depend on this; the next call runs into the same problem if it persists.
      if (!(error instanceof ConnectError)) throw error;
    }
  }
}

function describeTransport(session: Session): string {
  const { transport } = session;
  const text = transport === "shm" || transport === "tcp" ? transportTexts[transport] : transport;
  return `${session.program} (${session.clientPid}) uses ${sessionDevices(session)} over ${text}`;
}

// SPDX-License-Identifier: Apache-2.0

// Limits on unauthenticated connections to a server: their number, and their duration.

import { readFileSync } from "node:fs";
import type { Server, Socket } from "node:net";

/** Timeouts for clients of a Node server, in milliseconds. */
export const requestTimes = {
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  /** How often headers and requests are checked for these timeouts. */
  connectionsCheckingInterval: 1_000,
} as const;

/** Time limit for a TLS handshake, in milliseconds. */
export const handshakeTimeoutMs = 5_000;

/** The most connections of one server, if the process may open that many files. */
const mostConnections = 16_384;

/** Files reserved for everything else: the state, workers, connections to others. */
const reservedFiles = 512;

/** Interval between log lines about a flood. */
const tellAfterMs = 10_000;

export interface ConnectionLimits {
  /** The most connections of a server. */
  readonly most: number;
  /** Limit per source address, so that one address cannot take all connections. */
  readonly mostOfAddress: number;
}

/** As many connections as the process can handle. */
export function defaultConnectionLimits(): ConnectionLimits {
  const files = Number(/^Max open files +(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1]);
  const room = Number.isFinite(files) ? Math.max(files - reservedFiles, 64) : mostConnections;
  const most = Math.min(mostConnections, room);
  return { most, mostOfAddress: Math.floor(most / 2) };
}

/**
 * Closes connections beyond the limits as soon as they are accepted.
 *
 * @param tell Called at most every ten seconds, with the number of connections closed since the last call.
 */
export function limitConnections(
  server: Server,
  { most, mostOfAddress }: ConnectionLimits,
  tell: (refused: { readonly connections: number; readonly address: string }) => void,
): void {
  const open = new Map<string, number>();
  let refused = 0;
  let toldMs = Number.NEGATIVE_INFINITY;
  const refuse = (address: string): void => {
    refused += 1;
    const nowMs = performance.now();
    if (nowMs - toldMs >= tellAfterMs) {
      tell({ connections: refused, address });
      toldMs = nowMs;
      refused = 0;
    }
  };
  server.maxConnections = most;
  server.on("drop", (data) => refuse(data?.remoteAddress ?? "unknown"));
  server.on("connection", (socket: Socket) => {
    const address = socket.remoteAddress ?? "unknown";
    const count = (open.get(address) ?? 0) + 1;
    if (count > mostOfAddress) {
      socket.destroy();
      refuse(address);
      return;
    }
    open.set(address, count);
    socket.once("close", () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left === 0) {
        open.delete(address);
      } else {
        open.set(address, left);
      }
    });
  });
}

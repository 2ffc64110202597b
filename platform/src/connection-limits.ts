// SPDX-License-Identifier: Apache-2.0

// Limits of unauthenticated connections to a server: their number, and their time.

import { readFileSync } from "node:fs";
import type { Server, Socket } from "node:net";

/** Timeouts for clients of a Node server, in milliseconds. */
export const requestTimes = {
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  /** How often the two are looked at. */
  connectionsCheckingInterval: 1_000,
} as const;

/** Within which a TLS handshake has to be done, in milliseconds. */
export const handshakeTimeoutMs = 5_000;

/** The most connections of one server, where the process may have as many files. */
const mostConnections = 16_384;

/** Files that are kept for everything else: the state, workers, connections to others. */
const reservedFiles = 512;

/** Interval between log lines about a flood. */
const tellAfterMs = 10_000;

export interface ConnectionLimits {
  /** All of a server. */
  readonly most: number;
  /** Limit per source address, so that one address cannot take all connections. */
  readonly mostOfAddress: number;
}

/** As many as the process can handle. */
export function defaultConnectionLimits(): ConnectionLimits {
  const files = Number(/^Max open files +(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1]);
  const room = Number.isFinite(files) ? Math.max(files - reservedFiles, 64) : mostConnections;
  const most = Math.min(mostConnections, room);
  return { most, mostOfAddress: Math.floor(most / 2) };
}

/**
 * Closes connections beyond the limits as soon as they come.
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

// SPDX-License-Identifier: Apache-2.0

import { countOf, millpondError, quote } from "@millpond/api";

/** A range of TCP ports, both ends included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Reads `7200-7299`.
 *
 * @param own the agent's own port
 * @throws MILLPOND_E_INVALID
 */
export function parseWorkerPorts(text: string, own: number): PortRange {
  const [, from, to] = /^(\d{1,5})-(\d{1,5})$/.exec(text) ?? [];
  const range = { first: Number(from), last: Number(to) };
  if (!(range.first >= 1 && range.first <= range.last && range.last <= 65_535)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--worker-ports ${quote(text)} is not a range of ports such as 7200-7299`,
    );
  }
  if (isWithin(range, own)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--worker-ports ${text} contains ${own}, on which the agent itself listens`,
      { remedy: "Choose ports beside that of --listen." },
    );
  }
  return range;
}

export function isWithin({ first, last }: PortRange, port: number): boolean {
  return port >= first && port <= last;
}

/** @throws MILLPOND_E_NO_WORKER when all ports of the range are in use by workers */
export function requirePort(ports: PortRange | undefined, workers: number): void {
  if (ports === undefined || workers <= ports.last - ports.first) return;
  throw millpondError(
    "MILLPOND_E_NO_WORKER",
    `the ${countOf(workers, "worker")} of this node ${workers === 1 ? "has" : "have"} all TCP ports from ${ports.first} to ${ports.last}`,
    { remedy: "Give its agent a wider range with `--worker-ports`, or end programs." },
  );
}

/** The value of a worker's `--tcp`. */
export function tcpAddress(host: string, ports: PortRange | undefined): string {
  if (ports === undefined) return host;
  return `${host.includes(":") ? `[${host}]` : host}:${ports.first}-${ports.last}`;
}

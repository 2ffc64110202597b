// SPDX-License-Identifier: Apache-2.0

// How services write their logs: lines of JSON on standard error, which may be a file on a disk that fills up.

/** For `pino`. The lines of all services have the same form: the part of Millpond, and the time as in RFC 3339. */
export function logLineOptions(part: "controller" | "agent" | "kubernetes") {
  return { base: { part }, timestamp: () => `,"time":"${new Date().toISOString()}"` } as const;
}

/** For `pino.destination`. Lines that cannot be written are buffered, up to this many bytes; further ones are lost. */
export const logDestinationOptions = { fd: 2, sync: true, maxLength: 1 << 20 } as const;

/** A destination's report about lines that it could not write. */
interface Destination {
  on(event: "error", listener: () => void): unknown;
}

/** A service continues without a log: the failure cannot be reported anywhere, and writing is tried again. */
export function toleratingWriteErrors<T extends Destination>(destination: T): T {
  destination.on("error", () => undefined);
  return destination;
}

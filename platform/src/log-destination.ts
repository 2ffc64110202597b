// SPDX-License-Identifier: Apache-2.0

// Where services write their logs to: standard error, which may be a file on a disk that runs full.

/**
 * For `pino.destination`. Lines that cannot be written wait, up to this many bytes; further ones are lost.
 */
export const logDestinationOptions = { fd: 2, sync: true, maxLength: 1 << 20 } as const;

/** A destination's report about lines that it could not write. */
interface Destination {
  on(event: "error", listener: () => void): unknown;
}

/** A service does its work without a log: there is nowhere to say that it cannot be written, and it is tried again. */
export function outlivingItsDisk<T extends Destination>(destination: T): T {
  destination.on("error", () => undefined);
  return destination;
}

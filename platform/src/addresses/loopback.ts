// SPDX-License-Identifier: Apache-2.0

// Addresses and names that mean only this machine, for which a connection needs no encryption.

import { isIPv4 } from "node:net";

/** @param address An IP address without brackets; IPv4 may be written as IPv4-mapped IPv6. */
export function isLoopbackAddress(address: string): boolean {
  const plain = address.replace(/^::ffff:/i, "");
  return plain === "::1" || (isIPv4(plain) && plain.startsWith("127."));
}

/** @param host An address, with or without brackets, or a name: only `localhost` counts, because names are not resolved. */
export function isLoopbackHost(host: string): boolean {
  return /^localhost\.?$/i.test(host) || isLoopbackAddress(host.replace(/^\[|\]$/g, ""));
}

export function isLoopbackUrl({ hostname }: URL): boolean {
  return isLoopbackHost(hostname);
}

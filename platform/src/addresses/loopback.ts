// SPDX-License-Identifier: Apache-2.0

// Addresses and names that mean this machine alone, where a connection may do without encryption.

import { isIPv4 } from "node:net";

/** @param address An IP address without brackets; IPv4 may be in its form for IPv6. */
export function isLoopbackAddress(address: string): boolean {
  const plain = address.replace(/^::ffff:/i, "");
  return plain === "::1" || (isIPv4(plain) && plain.startsWith("127."));
}

/** @param host An address, in brackets or not, or a name: `localhost` is the only one that is not resolved. */
export function isLoopbackHost(host: string): boolean {
  return /^localhost\.?$/i.test(host) || isLoopbackAddress(host.replace(/^\[|\]$/g, ""));
}

export function isLoopbackUrl({ hostname }: URL): boolean {
  return isLoopbackHost(hostname);
}

// SPDX-License-Identifier: Apache-2.0

import { isIPv4, isIPv6 } from "node:net";

import { networkInterfaces } from "node:os";

/**
 * The address at which others reach a server that listens on `host`: if that means all addresses, the first external one of
 * this machine.
 */
export function reachableHost(host: string): string {
  if (host !== "0.0.0.0" && host !== "::") return host;
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const others = all.filter(({ internal, address }) => !internal && !address.startsWith("fe80:"));
  const found = others.find(({ family }) => family === "IPv4") ?? (host === "::" ? others[0] : undefined);
  // A machine without an external address cannot be reached from elsewhere.
  return found?.address ?? (host === "::" ? "::1" : "127.0.0.1");
}

/**
 * Whether a request without TLS was sent to an address or a name that certainly belongs to this server. A page of a
 * browser that has its own name resolved to loopback (DNS rebinding) sends that name.
 *
 * @param host the Host header of the request
 * @param names additional names of this server
 */
export function isOwnHost(host: string | undefined, names: readonly string[] = []): boolean {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]\s]+))(?::\d{1,5})?$/.exec(host ?? "");
  const [, v6, name = ""] = match ?? [];
  if (v6 !== undefined) {
    return isIPv6(v6);
  }
  const asked = name.toLowerCase().replace(/\.$/, "");
  return (
    isIPv4(asked) ||
    asked === "localhost" ||
    asked.endsWith(".localhost") ||
    names.some((each) => each.toLowerCase() === asked)
  );
}

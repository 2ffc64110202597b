// SPDX-License-Identifier: Apache-2.0

import { networkInterfaces } from "node:os";

/** At which address others reach what listens at `host`: of all addresses of this machine, the first that they can. */
export function reachableHost(host: string): string {
  if (host !== "0.0.0.0" && host !== "::") return host;
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const others = all.filter(({ internal, address }) => !internal && !address.startsWith("fe80:"));
  const found = others.find(({ family }) => family === "IPv4") ?? (host === "::" ? others[0] : undefined);
  // A machine without an external address cannot be reached from elsewhere.
  return found?.address ?? (host === "::" ? "::1" : "127.0.0.1");
}

// SPDX-License-Identifier: Apache-2.0

/**
 * Groups devices that reach each other over NVLink, also through others: each group is named by the first of its UUIDs.
 *
 * @param links pairs of UUIDs
 * @returns The name by UUID; who has no link is not in it.
 */
export function nvlinkDomains(links: readonly (readonly [string, string])[]): ReadonlyMap<string, string> {
  const domains = new Map<string, string>();
  for (const pair of links) {
    const met = new Set(pair.map((uuid) => domains.get(uuid) ?? uuid));
    const [name = ""] = [...met].sort();
    for (const uuid of [...domains.keys(), ...pair]) {
      if (met.has(domains.get(uuid) ?? uuid)) {
        domains.set(uuid, name);
      }
    }
  }
  return domains;
}

// SPDX-License-Identifier: Apache-2.0

/**
 * Groups devices that reach each other over NVLink, directly or through others. The first UUID of a group is its name.
 *
 * @param links pairs of UUIDs
 * @returns The group's name by UUID, without devices that have no link.
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

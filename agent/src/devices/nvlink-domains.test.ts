// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { nvlinkDomains } from "./nvlink-domains.ts";

test("devices that are joined, also through others, have one name", () => {
  expect(nvlinkDomains([]).size).toBe(0);
  const domains = nvlinkDomains([
    ["d", "c"],
    ["a", "b"],
    ["e", "f"],
    ["b", "c"],
  ]);
  expect(Object.fromEntries(domains)).toEqual({ a: "a", b: "a", c: "a", d: "a", e: "e", f: "e" });
});

test("the order of the links does not matter", () => {
  const device = fc.constantFrom("a", "b", "c", "d", "e", "f");
  const links = fc.array(fc.tuple(device, device), { maxLength: 10 });
  const withOrder = links.chain((list) =>
    fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length })),
  );
  fc.assert(
    fc.property(withOrder, ([told, shuffled]) => {
      const turned = shuffled.map(([one, other]) => [other, one] as const);
      expect(Object.fromEntries(nvlinkDomains(turned))).toEqual(Object.fromEntries(nvlinkDomains(told)));
    }),
  );
});

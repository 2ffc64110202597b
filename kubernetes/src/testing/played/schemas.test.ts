// SPDX-License-Identifier: Apache-2.0

import { create } from "@bufbuild/protobuf";
import { AllocationSchema, ClaimSchema, ClaimState, DeviceHealth, DeviceSchema } from "@millpond/api";
import type { V1Device } from "@kubernetes/client-node";
import fc from "fast-check";
import { expect, test } from "vitest";
import { toDevices, toWire } from "../../inventory/resource-slices.ts";
import { toResourceClaim } from "../../operator/claims/device-claims.ts";
import { makeResourceNames } from "../../request/resource-names.ts";
import { readManifests } from "../manifests.ts";
import { minors, violations } from "./schemas.ts";

const names = makeResourceNames();
const text = (maxLength: number) =>
  fc.oneof(
    fc.string({ unit: "grapheme", maxLength }),
    fc.constantFrom("é".repeat(60), "g".repeat(maxLength)),
  );
const memories = fc.bigInt({ min: 1n << 20n, max: 1n << 50n });

const slices = "resource.k8s.io/resourceslices";
const slice = (devices: readonly unknown[]) => ({
  spec: {
    driver: "millpond.dev",
    pool: { name: "gpu-a", generation: 1, resourceSliceCount: 1 },
    allNodes: true,
    devices,
  },
});

test("slices are what Kubernetes 1.34 to 1.36 takes, whatever devices call themselves", () => {
  const device = fc
    .record({
      index: fc.integer({ min: 0, max: 127 }),
      uuid: text(90),
      name: text(90),
      kind: fc.constantFrom("gpu", "mig", "soft"),
      memoryBytes: memories,
      multiprocessors: fc.integer({ min: 0, max: 1000 }),
      computeCapability: fc.oneof(fc.constantFrom("9.0", "10.3", ""), text(12)),
    })
    .map((each) => create(DeviceSchema, { ...each, health: DeviceHealth.HEALTHY }));
  fc.assert(
    fc.property(fc.array(device, { maxLength: 4 }), (devices) => {
      const published: V1Device[] = toDevices({ name: "gpu-a", devices });
      for (const minor of minors) expect(violations(slices, slice(published.map(toWire)), minor)).toEqual([]);
    }),
    { numRuns: 300, seed: 20_261_125 },
  );
});

test("ResourceClaims are what Kubernetes 1.34 to 1.36 takes, of claims that are granted and lazy ones", () => {
  const share = fc.record({
    uuid: text(64),
    memoryBytes: memories,
    computePercent: fc.integer({ min: 1, max: 100 }),
  });
  fc.assert(
    fc.property(fc.option(fc.array(share, { minLength: 1, maxLength: 8 }), { nil: undefined }), (devices) => {
      const claim = create(ClaimSchema, {
        name: "pod-1",
        state: devices === undefined ? ClaimState.DORMANT : ClaimState.BOUND,
        ...(devices && { allocation: create(AllocationSchema, { node: "gpu-a", epoch: 3n, devices }) }),
      });
      const pod = { metadata: { name: "p", namespace: "default", uid: "u-1" } };
      const made = toResourceClaim(names, pod, "millpond-0123456789abcdef-0", claim);
      const wire = JSON.parse(JSON.stringify(made)) as Record<string, unknown>;
      for (const minor of minors)
        expect(violations("resource.k8s.io/resourceclaims", wire, minor)).toEqual([]);
    }),
    { numRuns: 300, seed: 20_261_125 },
  );
});

test("the device class of the manifests is what Kubernetes 1.34 to 1.36 takes", () => {
  const classes = readManifests("base").filter(({ kind }) => kind === "DeviceClass");
  expect(classes).toHaveLength(1);
  for (const minor of minors)
    expect(violations("resource.k8s.io/deviceclasses", { ...classes[0] }, minor)).toEqual([]);
});

test.each([
  ["an unknown member", { name: "gpu-0", share: 1 }, "spec.devices[0].share is not known"],
  ["no name", {}, "spec.devices[0].name is missing"],
  ["a name in capitals", { name: "GPU-0" }, 'spec.devices[0].name: no such text: "GPU-0"'],
  [
    "a long attribute",
    { name: "g", attributes: { a: { string: "x".repeat(65) } } },
    "attributes.a.string: no such text",
  ],
  [
    "an attribute of two types",
    { name: "g", attributes: { a: { int: 1, bool: true } } },
    "not exactly one member",
  ],
  [
    "the library's own name of a member",
    { name: "g", attributes: { a: { _int: 1 } } },
    "attributes.a._int is not known",
  ],
  ["an attribute with a wrong name", { name: "g", attributes: { "a-b": { int: 1 } } }, "no such name: a-b"],
  [
    "a version without a patch",
    { name: "g", attributes: { v: { version: "9.0" } } },
    "version: no such text",
  ],
  [
    "capacity that is no quantity",
    { name: "g", capacity: { memory: { value: "8 GiB" } } },
    "value: no such text",
  ],
  [
    "a range without a least",
    { name: "g", capacity: { m: { value: "1", requestPolicy: { validRange: { max: "1" } } } } },
    "min is missing",
  ],
] as const)("a slice with %s is not taken", (_what, device, message) => {
  for (const minor of minors)
    expect(violations(slices, slice([device]), minor).join("\n")).toContain(message);
});

test("what a later version has is not taken by an earlier one", () => {
  const device = { name: "g", attributes: { a: { ints: [1] } } };
  expect(violations(slices, slice([device]), 35).join()).toContain("ints is not known");
  expect(violations(slices, slice([device]), 36).join()).not.toContain("is not known");
  const many = Array.from({ length: 129 }, (_, index) => ({ name: `g-${index}` }));
  expect(violations(slices, slice(many), 36)).toEqual(["spec.devices: more than 128"]);
});

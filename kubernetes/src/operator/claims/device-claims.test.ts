// SPDX-License-Identifier: Apache-2.0

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { V1Pod } from "@kubernetes/client-node";
import { ClaimSchema, ClaimState } from "@millpond/api";
import { expect, test } from "vitest";
import { makeResourceNames } from "../../request/resource-names.ts";
import { isOfLostDevices, toResourceClaim } from "./device-claims.ts";

const names = makeResourceNames("millpond.dev", "");
const pod: V1Pod = { metadata: { name: "a", namespace: "default", uid: "uid-a" } };

function makeClaim(
  device: string,
  epoch: bigint,
  {
    memoryBytes = 1n << 30n,
    ...more
  }: Omit<MessageInitShape<typeof ClaimSchema>, "allocation" | "$typeName"> = {},
) {
  const devices = [{ uuid: device, memoryBytes, computePercent: 25 }];
  const allocation = { claim: "pod-uid-a", node: "gpu-a", epoch, devices };
  return create(ClaimSchema, { name: "pod-uid-a", state: ClaimState.BOUND, allocation, ...more });
}

function makeReserved(device: string, epoch: bigint, uid = "uid-a") {
  const made = toResourceClaim(names, pod, "millpond-0", makeClaim(device, epoch));
  return { ...made, status: { reservedFor: [{ name: "a", resource: "pods", uid }] } };
}

test("a pod has lost its devices when its claim waited again and has others", () => {
  const lost = (claim: ReturnType<typeof makeClaim>, there = makeReserved("GPU-1", 1n)) =>
    isOfLostDevices(names, pod, there, claim);
  expect(lost(makeClaim("GPU-2", 2n, { requeues: 1 }))).toBe(true);
  // The same devices again, whatever their size.
  expect(lost(makeClaim("GPU-1", 2n, { requeues: 1, memoryBytes: 2n << 30n }))).toBe(false);
  // The claim was moved by a resize.
  expect(lost(makeClaim("GPU-2", 2n))).toBe(false);
  expect(lost(makeClaim("GPU-2", 2n, { requeues: 1, lazy: true }))).toBe(false);
  // The ResourceClaim is newer, or does not belong to this pod.
  expect(lost(makeClaim("GPU-2", 2n, { requeues: 1 }), makeReserved("GPU-1", 2n))).toBe(false);
  expect(lost(makeClaim("GPU-2", 2n, { requeues: 1 }), makeReserved("GPU-1", 3n))).toBe(false);
  expect(lost(makeClaim("GPU-2", 2n, { requeues: 1 }), makeReserved("GPU-1", 1n, "uid-b"))).toBe(false);
});

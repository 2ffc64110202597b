// SPDX-License-Identifier: Apache-2.0

import type { ResourceV1ResourceClaim } from "@kubernetes/client-node";
import type { Node } from "@millpond/api";
import { expect, test } from "vitest";
import { requestOf, requestsOf, seesPart, sharesOf, toUserClaim } from "./user-claims.ts";

const GiB = 1n << 30n;
const owner = { tenant: "team-a", queue: "vision", priority: 5, cluster: "c1" };
const nodes = [
  {
    name: "gpu-a",
    devices: [0, 1].map((index) => ({ index, uuid: `GPU-${index}`, memoryBytes: 16n * GiB })),
  },
] as unknown as Node[];

type Allocation = NonNullable<NonNullable<ResourceV1ResourceClaim["status"]>["allocation"]>;

function allocated(results: readonly object[], config?: readonly object[]): ResourceV1ResourceClaim {
  const devices = {
    results,
    ...(config === undefined ? {} : { config }),
  } as unknown as NonNullable<Allocation["devices"]>;
  return {
    metadata: { name: "mine", namespace: "team-a", uid: "u-1" },
    spec: {},
    status: { allocation: { devices } },
  };
}

const part = (device: string, consumedCapacity?: Record<string, string>, pool = "gpu-a") => ({
  request: "gpu",
  driver: "millpond.dev",
  pool,
  device,
  ...(consumedCapacity === undefined ? {} : { consumedCapacity }),
});

test("what is allocated is asked of the pool, device by device and to the byte", () => {
  const size = { cores: "30", memory: "4Gi" };
  const claim = toUserClaim(
    "millpond.dev",
    allocated([part("gpu-0", size), part("gpu-1", size)]),
    nodes,
    owner,
  );
  expect(claim).toMatchObject({
    gpus: 2,
    memoryBytes: 4n * GiB,
    computePercent: 30,
    onlyNode: "gpu-a",
    onlyDevices: ["GPU-0", "GPU-1"],
    tenant: "team-a",
    queue: "vision",
    priority: 5,
  });
  const whole = toUserClaim("millpond.dev", allocated([part("gpu-1")]), nodes, owner);
  expect(whole).toMatchObject({ gpus: 1, memoryBytes: 16n * GiB, computePercent: 100 });
});

test.each<[string, ResourceV1ResourceClaim, RegExp]>([
  ["nothing of the pool", allocated([{ ...part("gpu-0"), driver: "other.org" }]), /has nothing of the pool/],
  [
    "several nodes",
    allocated([part("gpu-0"), part("gpu-0", undefined, "gpu-b")]),
    /several nodes.*gpu-a, gpu-b/,
  ],
  ["a device that has gone", allocated([part("gpu-7")]), /no device gpu-a\/gpu-7 now/],
  ["parts of two sizes", allocated([part("gpu-0", { cores: "10" }), part("gpu-1")]), /several sizes/],
  ["no cores", allocated([part("gpu-0", { cores: "0", memory: "1Gi" })]), /0 cores/],
  [
    "parameters for our driver",
    allocated(
      [part("gpu-0")],
      [{ source: "FromClaim", opaque: { driver: "millpond.dev", parameters: { share: "everything" } } }],
    ),
    /has parameters for the driver millpond\.dev, which takes none.*Leave its config out/,
  ],
])("%s is refused, in the house form", (_what, claim, message) => {
  expect(() => toUserClaim("millpond.dev", claim, nodes, owner)).toThrow(message);
  expect(() => toUserClaim("millpond.dev", claim, nodes, owner)).toThrow(/\[MILLPOND_E_[A-Z_]+\]$/);
});

test("parameters for other drivers are theirs", () => {
  const config = [{ source: "FromClaim", opaque: { driver: "other.org", parameters: {} } }];
  expect(toUserClaim("millpond.dev", allocated([part("gpu-0")], config), nodes, owner).gpus).toBe(1);
});

test("access of administrators, of which Kubernetes keeps no account, is refused", () => {
  const claim = allocated([{ ...part("gpu-0"), adminAccess: true }]);
  expect(() => toUserClaim("millpond.dev", claim, nodes, owner)).toThrow(/adminAccess.*MILLPOND_E_INVALID/);
});

test("several shares of one device are one vGPU with their sum", () => {
  const results = [
    part("gpu-0", { cores: "20", memory: "2Gi" }),
    part("gpu-1", { cores: "30", memory: "3Gi" }),
    part("gpu-0", { cores: "10", memory: "1Gi" }),
  ];
  expect(toUserClaim("millpond.dev", allocated(results), nodes, owner)).toMatchObject({
    gpus: 2,
    memoryBytes: 3n * GiB,
    computePercent: 30,
    onlyDevices: ["GPU-0", "GPU-1"],
  });
  const whole = sharesOf([part("gpu-0", { cores: "20" }), part("gpu-0", { cores: "5", memory: "1Gi" })]);
  expect(whole).toEqual([{ pool: "gpu-a", device: "gpu-0", cores: 25n, memory: undefined }]);
});

test("a container that names requests of its claim, or has an extended resource, sees a part of the claim", () => {
  const uses = (...claims: { name: string; request?: string }[]) => ({ resources: { claims } });
  expect(seesPart(uses({ name: "g", request: "a" }), "g")).toBe(true);
  expect(seesPart(uses({ name: "g", request: "a" }, { name: "g" }), "g")).toBe(false);
  expect(seesPart({}, "*")).toBe(true);
  const container = (name: string, own: object) => ({ name, image: "x", ...own });
  const pod = {
    spec: {
      containers: [
        container("part", uses({ name: "g", request: "a" }, { name: "other", request: "c" })),
        container("all", uses({ name: "g" })),
      ],
    },
    status: {
      extendedResourceClaimStatus: {
        resourceClaimName: "made",
        requestMappings: [
          { containerName: "part", resourceName: "example.org/gpu", requestName: "container-0-request-0" },
          { containerName: "all", resourceName: "example.org/gpu", requestName: "container-1-request-0" },
        ],
      },
    },
  };
  expect(["part", "all"].map((name) => requestsOf(pod, "g", name))).toEqual([["a"], []]);
  expect(requestsOf(pod, "*", "all")).toEqual(["container-1-request-0"]);
  expect(["gpu", "gpu/small"].map((request) => requestOf({ request }))).toEqual(["gpu", "gpu"]);
});

// SPDX-License-Identifier: Apache-2.0

import { formatSize, isName } from "@millpond/api";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  claimName,
  parseOwner,
  podOfClaim,
  type PodIdentity,
  toClaimPriority,
  toClaims,
} from "./pod-claims.ts";
import { formatSlices, parseSlices, type PodSlice, readPodRequest } from "./pod-request.ts";
import { formatQuantity, parseWholeQuantity } from "./quantity.ts";
import { makeResourceNames } from "./resource-names.ts";
import { readSlice, withoutSlice } from "./slice.ts";

const names = makeResourceNames("millpond.dev", "vgpu=pool.kubernetes.io/gpu,memory=pool.kubernetes.io/mem");

describe("quantities", () => {
  test.each([
    ["1", 1n],
    ["+3", 3n],
    ["8Gi", 8n << 30n],
    ["1.5Ki", 1536n],
    ["16k", 16_000n],
    ["2e3", 2000n],
    ["3000m", 3n],
    ["0.5M", 500_000n],
    ["7E", 7n * 10n ** 18n],
  ])("%s is %d", (text, value) => {
    expect(parseWholeQuantity(text, "x")).toBe(value);
  });

  test.each(["", "-1", "1.5", "500m", "0.5", "1Q", "1 Gi", "١", "0x10", "1e999", "NaN"])(
    "%j is refused",
    (text) => {
      expect(() => parseWholeQuantity(text, "millpond.dev/vgpu")).toThrow(
        /millpond\.dev\/vgpu: .*\[MILLPOND_E_INVALID\]$/,
      );
    },
  );

  test("what is written is read back", () => {
    fc.assert(
      fc.property(fc.bigInt(0n, 1n << 60n), fc.nat(60), (value, shift) => {
        const bytes = (value >> BigInt(shift)) << BigInt(shift);
        expect(parseWholeQuantity(formatQuantity(bytes), "x")).toBe(bytes);
      }),
    );
  });
});

describe("names of resources", () => {
  test("a cluster can have its own, and each still means one thing", () => {
    const own = makeResourceNames("gpu.example.org", "vgpu=pool.kubernetes.io/gpu");
    expect(readSlice(own, container({ "pool.kubernetes.io/gpu": "1" }))).toEqual({ gpus: 1 });
    expect(readSlice(own, container({ "millpond.dev/vgpu": "1" }))).toBeUndefined();
  });

  test("pods written for HAMi mean the same", () => {
    const kinds = {
      vgpu: "gpu",
      memory: "gpumem",
      "memory-percent": "gpumem-percentage",
      compute: "gpucores",
    };
    const aliases = Object.entries(kinds).map(([kind, name]) => `${kind}=nvidia.com/${name}`);
    const own = makeResourceNames("millpond.dev", aliases.join(","));
    const limits = { "nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30" };
    const memory = { kind: "bytes", bytes: 3000n << 20n };
    expect(readSlice(own, container(limits))).toEqual({ gpus: 2, memory, compute: 30 });
    const percent = { "nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50" };
    expect(readSlice(own, container(percent))).toEqual({ gpus: 1, memory: { kind: "percent", percent: 50 } });
  });

  test.each([
    ["nodomain", ""],
    ["Millpond.dev", ""],
    ["millpond.dev", "vgpu"],
    ["millpond.dev", "gpus=example.org/x"],
    ["millpond.dev", "vgpu=x"],
    ["millpond.dev", "vgpu=example.org/x,compute=example.org/x"],
    ["millpond.dev", "vgpu=millpond.dev/compute"],
  ])("%j with %j is refused", (domain, aliases) => {
    expect(() => makeResourceNames(domain, aliases)).toThrow(/\[MILLPOND_E_INVALID\]$/);
  });
});

function container(limits: Record<string, string>, name = "main", more: object = {}) {
  return { name, resources: { limits }, ...more };
}

describe("what a container asks", () => {
  test.each<[Record<string, string>, unknown]>([
    [{ cpu: "1" }, undefined],
    [{ "millpond.dev/vgpu": "2" }, { gpus: 2 }],
    [{ "millpond.dev/compute": "30" }, { gpus: 1, compute: 30 }],
    [{ "millpond.dev/memory": "8Gi" }, { gpus: 1, memory: { kind: "bytes", bytes: 8n << 30n } }],
    // A number of MiB, also in the form of API servers, which write 16000 as 16k.
    [{ "millpond.dev/memory": "8192" }, { gpus: 1, memory: { kind: "bytes", bytes: 8n << 30n } }],
    [{ "millpond.dev/memory": "16k" }, { gpus: 1, memory: { kind: "bytes", bytes: 16_000n << 20n } }],
    [{ "pool.kubernetes.io/mem": "1Gi" }, { gpus: 1, memory: { kind: "bytes", bytes: 1n << 30n } }],
    [{ "millpond.dev/memory-percent": "50" }, { gpus: 1, memory: { kind: "percent", percent: 50 } }],
  ])("%j", (limits, slice) => {
    expect(readSlice(names, container(limits))).toEqual(slice);
  });

  test.each<[Record<string, string>, RegExp]>([
    [{ "millpond.dev/vgpu": "0" }, /"0" of millpond\.dev\/vgpu, .* from 1 to 64\. Ask for a whole number/],
    [{ "millpond.dev/vgpu": "65" }, /from 1 to 64/],
    [{ "millpond.dev/vgpu": "1500m" }, /"1500m" is not a whole number\. Ask for/],
    [{ "millpond.dev/vgpu": "-1" }, /is not a quantity/],
    [{ "millpond.dev/compute": "101" }, /"101" of millpond\.dev\/compute, .* from 1 to 100/],
    [{ "millpond.dev/compute": "0" }, /from 1 to 100/],
    [{ "millpond.dev/memory": "0" }, /not between 1 MiB and 1 PiB/],
    [{ "millpond.dev/memory": "2Pi" }, /not between 1 MiB and 1 PiB/],
    [{ "millpond.dev/memory": "1Gi", "millpond.dev/memory-percent": "5" }, /1 GiB and for 5%.* Leave out/],
    [{ "millpond.dev/vgpu": "1", "pool.kubernetes.io/gpu": "1" }, /which are the same/],
  ])("%j is refused with a remedy", (limits, message) => {
    expect(() => readSlice(names, container(limits))).toThrow(message);
    expect(() => readSlice(names, container(limits))).toThrow(
      /^.*the container "main".*\[MILLPOND_E_INVALID\]$/,
    );
  });

  test("a request has to be the limit", () => {
    const both = (limit: string, request: string) => ({
      name: "main",
      resources: { limits: { "millpond.dev/memory": limit }, requests: { "millpond.dev/memory": request } },
    });
    expect(readSlice(names, both("1Gi", "1024Mi"))).toEqual({
      gpus: 1,
      memory: { kind: "bytes", bytes: 1n << 30n },
    });
    expect(() => readSlice(names, both("2Gi", "1Gi"))).toThrow(/requests "1Gi".*has a limit of "2Gi"/);
    const alone = { name: "main", resources: { requests: { "millpond.dev/vgpu": "1" } } };
    expect(() => readSlice(names, alone)).toThrow(/has a limit of none/);
  });

  test("only what asks for the pool is taken out of the resources", () => {
    const resources = {
      limits: { cpu: "1", "millpond.dev/vgpu": "1", "pool.kubernetes.io/mem": "1Gi" },
      requests: { "millpond.dev/vgpu": "1", memory: "1Gi" },
      claims: [{ name: "other" }],
    };
    expect(withoutSlice(names, resources, new Map())).toEqual({
      limits: { cpu: "1" },
      requests: { memory: "1Gi" },
      claims: [{ name: "other" }],
    });
    expect(withoutSlice(names, { limits: { "millpond.dev/vgpu": "1" } }, new Map())).toEqual({});
  });
});

const gpu = { "millpond.dev/vgpu": "1" };

function pod(spec: object, annotations: Record<string, string> = {}, labels: Record<string, string> = {}) {
  return { metadata: { annotations, labels }, spec };
}

describe("what a pod asks", () => {
  test("containers, sidecars and init containers, each claim once", () => {
    const request = readPodRequest(
      names,
      pod({
        containers: [container(gpu, "a"), { name: "plain" }, container({ "millpond.dev/vgpu": "2" }, "b")],
        initContainers: [container(gpu, "prepare"), container(gpu, "proxy", { restartPolicy: "Always" })],
      }),
    );
    expect(request?.slices).toEqual([
      { slice: { gpus: 1 }, containers: ["a", "prepare"] },
      { slice: { gpus: 2 }, containers: ["b"] },
      { slice: { gpus: 1 }, containers: ["proxy"] },
    ]);
  });

  test("init containers alone share one claim", () => {
    const inits = [container(gpu, "first"), container(gpu, "second")];
    const request = readPodRequest(names, pod({ containers: [{ name: "main" }], initContainers: inits }));
    expect(request?.slices).toEqual([{ slice: { gpus: 1 }, containers: ["first", "second"] }]);
  });

  test("an init container with a slice of its own is refused", () => {
    const spec = {
      containers: [container(gpu, "a")],
      initContainers: [container({ "millpond.dev/vgpu": "2" }, "i")],
    };
    expect(() => readPodRequest(names, pod(spec))).toThrow(/init container "i" requests a different part/);
  });

  test("nothing of a pod that asks for nothing", () => {
    expect(
      readPodRequest(names, pod({ containers: [{ name: "a" }] }, { "other.org/x": "1" })),
    ).toBeUndefined();
    expect(() =>
      readPodRequest(names, pod({ containers: [{ name: "a" }] }, { "millpond.dev/queue": "q" })),
    ).toThrow(/annotation millpond\.dev\/queue, and no container/);
  });

  test("annotations say how, and a label may name the queue", () => {
    const spec = { containers: [container(gpu)] };
    const annotations = {
      "millpond.dev/preemptible": "true",
      "millpond.dev/time-limit": "2h",
      "millpond.dev/model": "H200,B200",
      "millpond.dev/resize": "compute=50",
    };
    expect(
      readPodRequest(names, pod(spec, annotations, { "millpond.dev/queue": "vision" }))?.options,
    ).toEqual({
      preemptible: true,
      timeLimit: 7200,
      model: ["H200", "B200"],
      queue: "vision",
    });
  });

  test.each<[Record<string, string>, RegExp]>([
    [
      { "millpond.dev/quue": "x" },
      /annotation "millpond\.dev\/quue" is unknown\. Annotations of millpond\.dev are lazy/,
    ],
    [{ "millpond.dev/tenant": "other" }, /is unknown/],
    [{ "millpond.dev/priority": "1000" }, /is unknown/],
    [{ "millpond.dev/gpus": "8" }, /is unknown/],
    [{ "millpond.dev/request": "[]" }, /is unknown/],
    [{ "millpond.dev/time-limit": "soon" }, /annotation millpond\.dev\/time-limit: "soon" is not a duration/],
    [{ "millpond.dev/queue": "Not a name" }, /annotation millpond\.dev\/queue: /],
  ])("%j is refused", (annotations, message) => {
    expect(() => readPodRequest(names, pod({ containers: [container(gpu)] }, annotations))).toThrow(message);
  });
});

const slice = fc.record(
  {
    gpus: fc.integer({ min: 1, max: 64 }),
    memory: fc.oneof(
      fc.record({ kind: fc.constant("bytes" as const), bytes: fc.bigInt(1n << 20n, 1n << 50n) }),
      fc.record({ kind: fc.constant("percent" as const), percent: fc.integer({ min: 1, max: 100 }) }),
    ),
    compute: fc.integer({ min: 1, max: 100 }),
  },
  { requiredKeys: ["gpus"] },
);

const podSlices = fc.array(
  fc.record({
    slice,
    containers: fc.array(fc.stringMatching(/^[a-z]{1,8}$/), { minLength: 1, maxLength: 3 }),
  }),
  { minLength: 1, maxLength: 4 },
) as fc.Arbitrary<PodSlice[]>;

test("what the webhook writes of slices is read back, and nothing that it does not write", () => {
  fc.assert(
    fc.property(podSlices, (slices) => {
      expect(parseSlices(formatSlices(slices))).toEqual(slices);
    }),
  );
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
      let read: PodSlice[] | undefined;
      try {
        read = parseSlices(text);
      } catch (error) {
        expect(String(error)).toMatch(/\[MILLPOND_E_INVALID\]$/);
      }
      if (read !== undefined) expect(parseSlices(formatSlices(read))).toEqual(read);
    }),
  );
});

test("a size asked for in a limit is the size of the claim", () => {
  fc.assert(
    fc.property(fc.bigInt(1n << 20n, 1n << 50n), (bytes) => {
      const asked = readSlice(names, container({ "millpond.dev/memory": formatQuantity(bytes) }));
      expect(asked?.memory, formatSize(bytes)).toEqual({ kind: "bytes", bytes });
    }),
  );
});

const identity: PodIdentity = {
  namespace: "team-a",
  name: "train-0",
  uid: "0f0e0d0c-0b0a-4908-8706-050403020100",
  tenant: "team-a",
  queue: "research",
  priority: 7,
};

describe("claims of a pod", () => {
  test("carry what the cluster knows of it, and nothing that the pod could say of itself", () => {
    const [claim] = toClaims(
      { slices: [{ slice: { gpus: 2, compute: 30 }, containers: ["main"] }], options: {} },
      identity,
      "c1",
    );
    expect(claim).toMatchObject({
      name: `pod-${identity.uid}`,
      gpus: 2,
      computePercent: 30,
      tenant: "team-a",
      queue: "research",
      priority: 7,
      owner: "pod team-a/train-0 main",
      labels: { "kubernetes/cluster": "c1", "kubernetes/namespace": "team-a", "kubernetes/pod": "train-0" },
    });
  });

  test("of several containers are bound together or not at all", () => {
    const slices = ["a", "b"].map((name) => ({ slice: { gpus: 1 }, containers: [name] }));
    const claims = toClaims({ slices, options: {} }, identity, "c1");
    expect(claims.map(({ name, gang, gangSize }) => [name, gang, gangSize])).toEqual([
      [`pod-${identity.uid}`, `pod-${identity.uid}`, 2],
      [`pod-${identity.uid}-1`, `pod-${identity.uid}`, 2],
    ]);
    const [member] = toClaims({ slices, options: { gangSize: 4 } }, { ...identity, group: "job-1" }, "c1");
    expect(member?.gangSize).toBe(8);
  });

  test("pods of one job are a gang, and those of another namespace with the same name are another", () => {
    const one = {
      slices: [{ slice: { gpus: 1 }, containers: ["main"] }],
      options: { gang: "crew", gangSize: 4 },
    };
    const [here] = toClaims(one, identity, "c1");
    const [there] = toClaims(one, { ...identity, namespace: "team-b" }, "c1");
    expect(here?.gangSize).toBe(4);
    expect(here?.gang).not.toBe(there?.gang);
    expect(isName(here?.gang ?? "")).toBe(true);
    const alone = { ...one, options: { gangSize: 4 } };
    expect(() => toClaims(alone, identity, "c1")).toThrow(/neither a gang nor a job/);
    expect(toClaims(alone, { ...identity, group: "uid-of-job" }, "c1")[0]?.gang).toBeDefined();
    expect(() => toClaims({ ...one, options: { gang: "crew" } }, identity, "c1")).toThrow(/gang-size/);
  });

  test("are found by their names, and other claims are not taken for a pod's", () => {
    fc.assert(
      fc.property(fc.uuid(), fc.integer({ min: 0, max: 15 }), (uid, index) => {
        const name = claimName(uid, index);
        expect(isName(name)).toBe(true);
        expect(podOfClaim(name)).toEqual({ uid, index });
      }),
    );
    for (const name of [
      "pod-1",
      "train",
      `pod-${identity.uid}-0`,
      `pod-${identity.uid}-16`,
      `x-pod-${identity.uid}`,
    ]) {
      expect(podOfClaim(name)).toBeUndefined();
    }
  });

  test("the order of priorities stays", () => {
    fc.assert(
      fc.property(fc.integer({ min: -2_147_483_648, max: 1_000_000_000 }), fc.integer(), (a, b) => {
        const [x, y] = [toClaimPriority(a), toClaimPriority(b)];
        expect(Math.sign(x - y) * Math.sign(a - b)).toBeGreaterThanOrEqual(0);
        expect(Math.abs(x)).toBeLessThanOrEqual(1000);
      }),
    );
  });
});

test("the owner of a claim names its pod, or says that the name is too long to be known from it", () => {
  const ownerOf = (name: string): string =>
    toClaims(
      { slices: [{ slice: { gpus: 1 }, containers: ["main"] }], options: {} },
      { ...identity, name },
      "c1",
    )[0]?.owner ?? "";
  expect(parseOwner("pod", ownerOf("train-0"))).toEqual({ namespace: "team-a", name: "train-0" });
  for (const length of [238, 245, 253])
    expect(parseOwner("pod", ownerOf("a".repeat(length)))?.name, `${length}`).toBe(
      length < 245 ? "a".repeat(length) : undefined,
    );
  expect(parseOwner("resourceclaim", ownerOf("train-0"))).toBeUndefined();
  expect(parseOwner("pod", "ann")).toBeUndefined();
});

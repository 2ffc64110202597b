// SPDX-License-Identifier: Apache-2.0

import type { ResourceV1ResourceClaim } from "@kubernetes/client-node";
import fc from "fast-check";
import { expect, test } from "vitest";
import { validateRequests } from "./validate-claims.ts";

const GiB = 1n << 30n;
const checks = {
  domain: "millpond.dev",
  isOurs: (name: string) => name === "millpond.dev" || name === "half-a-gpu",
  limits: { largestDeviceBytes: 16n * GiB, mostDevices: 2, queues: ["default"] },
};

type Devices = ResourceV1ResourceClaim["spec"]["devices"];

function refusal(devices: Devices, with_: Parameters<typeof validateRequests>[0] = checks): string {
  try {
    validateRequests(with_, devices);
    return "taken";
  } catch (error) {
    return error instanceof Error && "rawMessage" in error ? String(error.rawMessage) : String(error);
  }
}

const gpu = (more: object = {}, deviceClassName = "millpond.dev"): Devices => ({
  requests: [{ name: "gpu", exactly: { deviceClassName, ...more } }],
});
const capacity = (requests: Record<string, string>) => ({ capacity: { requests } });

test.each<[string, Devices]>([
  ["no capacity", gpu()],
  ["all of a device", gpu(capacity({ cores: "100", memory: "16Gi" }))],
  ["the least", gpu(capacity({ cores: "1", memory: "1Mi" }))],
  ["names with the domain", gpu(capacity({ "millpond.dev/cores": "30", "millpond.dev/memory": "8Gi" }))],
  ["every device", gpu({ count: 2 })],
  ["a class of other devices, whatever it requests", gpu(capacity({ slots: "0.5" }), "nics.example.org")],
  [
    "parameters of another driver",
    { ...gpu(), config: [{ opaque: { driver: "nics.example.org", parameters: {} } }] },
  ],
  ["nothing", undefined],
])("a ResourceClaim with %s is taken", (_what, devices) => {
  expect(refusal(devices)).toBe("taken");
});

const alternatives = (...asked: object[]): Devices => ({
  requests: [
    {
      name: "gpu",
      firstAvailable: asked.map((each, index) => ({
        name: `of-${index}`,
        deviceClassName: "millpond.dev",
        ...each,
      })),
    },
  ],
});

test("of alternatives, one that the pool can meet, or another driver, is enough", () => {
  const large = capacity({ memory: "900Gi" });
  expect(refusal(alternatives(large, capacity({ memory: "16Gi" })))).toBe("taken");
  expect(refusal(alternatives({ count: 3 }, {}))).toBe("taken");
  expect(refusal(alternatives(large, { ...large, deviceClassName: "any-gpu" }))).toBe("taken");
  expect(refusal(alternatives(large, { count: 3 }))).toMatch(/"gpu\/of-0" asks for "900Gi".*IMPOSSIBLE/);
});

const selecting = (expression: string) => gpu({ selectors: [{ cel: { expression } }], count: 3 }, "any-gpu");

test.each<[string, Devices, RegExp]>([
  ["a fraction of a percent", gpu(capacity({ cores: "12.5" })), /"12\.5" is not a whole number.*INVALID/],
  ["millis", gpu(capacity({ cores: "30500m" })), /not a whole number.*INVALID/],
  ["no cores", gpu(capacity({ cores: "0" })), /"0" of cores.*1 and 100.*INVALID/],
  ["more than all cores", gpu(capacity({ cores: "101" })), /"101" of cores.*INVALID/],
  ["fewer than none", gpu(capacity({ cores: "-1" })), /INVALID/],
  ["no memory", gpu(capacity({ memory: "0" })), /less than 1Mi.*INVALID/],
  ["a fraction of a byte", gpu(capacity({ memory: "1500m" })), /not a whole number.*INVALID/],
  ["more memory than a device has", gpu(capacity({ memory: "17Gi" })), /17Gi.*has 16 GiB.*IMPOSSIBLE/],
  ["more devices than a node has", gpu({ count: 3 }), /3 devices, and no node .* more than 2.*IMPOSSIBLE/],
  ["capacity that no device has", gpu(capacity({ vram: "8Gi" })), /"vram".*cores and memory.*INVALID/],
  ["another class of our devices", gpu(capacity({ cores: "0" }), "half-a-gpu"), /of cores/],
  ["our driver in a selector", selecting('device.driver == "millpond.dev"'), /3 devices/],
  ["an attribute of ours", selecting('device.attributes["millpond.dev"].model == "H200"'), /3 devices/],
  ["access of an administrator", gpu({ adminAccess: true }), /adminAccess.*INVALID/],
  [
    "parameters for our driver",
    { ...gpu(), config: [{ opaque: { driver: "millpond.dev", parameters: { share: "all" } } }] },
    /parameters for the driver millpond\.dev, which takes none.*INVALID/,
  ],
  [
    "a wrong alternative",
    {
      requests: [
        {
          name: "gpu",
          firstAvailable: [
            { name: "large", deviceClassName: "millpond.dev" },
            { name: "small", deviceClassName: "millpond.dev", ...capacity({ cores: "0" }) },
          ],
        },
      ],
    },
    /the request "gpu\/small" asks for "0" of cores/,
  ],
])("a ResourceClaim with %s is refused, with a remedy", (_what, devices, message) => {
  const said = refusal(devices);
  expect(said).toMatch(message);
  expect(said).toMatch(/^[^\n]+ \[MILLPOND_E_[A-Z]+\]$/);
});

test("sizes are not compared with a pool that does not answer, or has no devices yet", () => {
  const large = gpu({ ...capacity({ memory: "900Gi" }), count: 9 });
  expect(refusal(large, { ...checks, limits: undefined })).toBe("taken");
  const none = { largestDeviceBytes: 0n, mostDevices: 0, queues: [] };
  expect(refusal(large, { ...checks, limits: none })).toBe("taken");
  expect(refusal(gpu(capacity({ cores: "0" })), { ...checks, limits: undefined })).toContain("of cores");
});

const amount = fc.oneof(
  fc.constantFrom(
    "1",
    "30",
    "100",
    "101",
    "0",
    "-1",
    "1Mi",
    "16Gi",
    "17Gi",
    "16384Mi",
    "1e3",
    "1e30",
    "9Ei",
    "500m",
  ),
  fc.constantFrom("", " 1", "1 ", "0x10", "1_0", "Infinity", "NaN", "1.0", "01", "+5", "５", "__proto__"),
  fc.string({ maxLength: 6 }),
);
const capacityKey = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom("cores", "memory", "millpond.dev/cores", "millpond.dev/memory") },
  {
    weight: 1,
    arbitrary: fc.constantFrom("vram", "Cores", "millpond.dev/", "constructor", "evil.org/memory"),
  },
);
const hostileRequest = fc.record(
  {
    deviceClassName: fc.constantFrom("millpond.dev", "half-a-gpu", "nics.example.org"),
    count: fc.constantFrom(1, 2, 3, 64),
    adminAccess: fc.boolean(),
    capacity: fc.record(
      { requests: fc.dictionary(capacityKey, amount, { maxKeys: 2 }) },
      { requiredKeys: [] },
    ),
    selectors: fc.constantFrom([], [{ cel: { expression: 'device.driver == "millpond.dev"' } }], [{}]),
  },
  { requiredKeys: ["deviceClassName"] },
);
const hostileDevices = fc.record({
  requests: fc.array(
    fc.oneof(
      hostileRequest.map((exactly) => ({ name: "gpu", exactly })),
      fc.array(hostileRequest, { minLength: 1, maxLength: 3 }).map((list) => ({
        name: "gpu",
        firstAvailable: list.map((each, index) => ({ name: `of-${index}`, ...each })),
      })),
    ),
    { maxLength: 2 },
  ),
});

test("whatever is written in a ResourceClaim, it is refused in the house form, or asks for whole parts of devices that there are", () => {
  const seen = { taken: 0, refused: 0 };
  const bytesOf = (text: string): bigint => {
    const [, digits = "", exponent = "0", binary = "", decimal = ""] =
      /^\+?(\d+)(?:\.0*)?(?:[eE](\d+)|([KMGTPE])i|([kMGTPE]))?$/.exec(text) ?? [];
    expect(digits, text).not.toBe("");
    const power = (letters: string, letter: string) => BigInt(letters.indexOf(letter) + 1);
    return (
      BigInt(digits) *
      10n ** BigInt(exponent) *
      1024n ** (binary === "" ? 0n : power("KMGTPE", binary)) *
      1000n ** (decimal === "" ? 0n : power("kMGTPE", decimal))
    );
  };
  fc.assert(
    fc.property(hostileDevices, (written) => {
      const devices = JSON.parse(JSON.stringify(written)) as NonNullable<Devices>;
      // API servers refuse a name that is there twice.
      for (const [index, request] of (devices.requests ?? []).entries()) request.name = `gpu-${index}`;
      const said = refusal(devices);
      if (said !== "taken") {
        seen.refused += 1;
        expect(said).toMatch(/^[^\n]+\. [^\n]+ \[MILLPOND_E_(INVALID|IMPOSSIBLE)\]$/);
        return;
      }
      seen.taken += 1;
      for (const { exactly, firstAvailable = [] } of devices.requests ?? []) {
        const all = exactly === undefined ? firstAvailable : [exactly];
        const ours = all.filter(
          ({ deviceClassName, selectors = [] }) =>
            checks.isOurs(deviceClassName) ||
            selectors.some(({ cel }) => cel?.expression.includes("millpond.dev") === true),
        );
        const fits = ours.filter(({ count = 1, ...asked }) => {
          const { requests = {} } = asked.capacity ?? {};
          const sizes = Object.entries(requests).map(([key, text]) => {
            const kind = key.replace("millpond.dev/", "");
            expect(["cores", "memory"]).toContain(kind);
            return { kind, size: bytesOf(text) };
          });
          for (const { kind, size } of sizes)
            expect(size >= 1n && (kind === "cores" ? size <= 100n : size >= 1n << 20n)).toBe(true);
          return count <= 2 && sizes.every(({ kind, size }) => kind === "cores" || size <= 16n * GiB);
        });
        expect(ours.some((each) => "adminAccess" in each && each.adminAccess)).toBe(false);
        // One alternative is enough, and one of another driver is not ours to judge.
        expect(fits.length > 0 || ours.length < all.length || all.length === 0).toBe(true);
      }
    }),
    { numRuns: 3000, seed: 20_261_128 },
  );
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(100);
});

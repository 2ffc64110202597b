// SPDX-License-Identifier: Apache-2.0

// ResourceClaims that users write, on a control plane that supports them: the scheduler and the controllers are real,
// but there is no kubelet.

import { ClaimState } from "@millpond/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { describeFailure } from "../../cluster/cluster.ts";
import { findKubernetes, withKubernetes } from "../../testing/control-plane.ts";
import { TestCluster } from "../../testing/test-cluster.ts";

const GiB = 1n << 30n;

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await TestCluster.start({ "gpu-a": [16n * GiB], "gpu-b": [16n * GiB] });
    const operator = await cluster.startOperator();
    await cluster.addNode("worker-1");
    if (operator.allocation !== "dra") return;
    await cluster.until("the pool is published", async () => {
      const { items } = await cluster.plane.cluster.resource.listResourceSlice();
      return items.length === 2;
    });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
  });

  const hasClaims = () => cluster.operators[0]?.allocation === "dra";
  const resource = () => cluster.plane.cluster.resource;
  const poolClaims = async () => (await cluster.pool.connect().claims.listClaims({})).claims;
  const asks = (requests: Record<string, string>, node: string) => ({
    devices: {
      requests: [
        {
          name: "gpu",
          exactly: {
            deviceClassName: "millpond.dev",
            selectors: [{ cel: { expression: `device.attributes["millpond.dev"].node == "${node}"` } }],
            capacity: { requests },
          },
        },
      ],
    },
  });
  const makePod = async (name: string, claim: object) =>
    await cluster.createPod(
      name,
      { cpu: "1" },
      {
        spec: {
          resourceClaims: [{ name: "gpu", ...claim }],
          containers: [
            { name: "main", image: "example.org/none", resources: { claims: [{ name: "gpu" }] } },
            { name: "plain", image: "example.org/none" },
          ],
        },
      },
    );
  const condition = async (name: string) =>
    (await cluster.pod(name))?.status?.conditions?.find(({ type }) => type === "millpond.dev/Bound");

  test("what a template asks for is granted by the pool on the very device, and given back with the pod", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const spec = asks({ cores: "30", memory: "4Gi" }, "gpu-b");
    const body = { metadata: { name: "third" }, spec: { spec } };
    await resource().createNamespacedResourceClaimTemplate({ namespace: "default", body });
    const pod = await makePod("templated", { resourceClaimTemplateName: "third" });
    expect(pod.spec?.schedulingGates).toBeUndefined();
    expect(pod.spec?.containers[1]?.env).toBeUndefined();
    await cluster.until("it is bound", async () => (await condition("templated"))?.status === "True");
    const claims = await poolClaims();
    expect(claims).toMatchObject([
      {
        name: expect.stringMatching(/^rc-/),
        state: ClaimState.BOUND,
        computePercent: 30,
        memoryBytes: 4n * GiB,
        tenant: "default",
        allocation: { node: "gpu-b" },
      },
    ]);
    const id = pod.metadata?.annotations?.["millpond.dev/id"];
    const secret = { name: `millpond-${id}`, namespace: "default" };
    const { data } = await cluster.core.readNamespacedSecret(secret);
    const said = (key: string) => Buffer.from(data?.[key] ?? "", "base64").toString();
    expect(said("claim-0")).toBe(claims[0]?.name);
    expect(said("token-0")).toMatch(/^mp-claim-rc-/);
    const [main] = pod.spec?.containers ?? [];
    expect(main?.env?.find(({ name }) => name === "MILLPOND_CLAIM")?.valueFrom?.secretKeyRef).toEqual({
      name: secret.name,
      key: "claim-0",
    });
    const [made] = (await resource().listNamespacedResourceClaim({ namespace: "default" })).items;
    expect(made?.metadata?.annotations?.["millpond.dev/claim"]).toBe(claims[0]?.name);
    await cluster.core.deleteNamespacedPod({ name: "templated", namespace: "default" });
    await cluster.until("nothing is left", async () => (await poolClaims()).length === 0);
  });

  test("a ResourceClaim for all devices has those of one node, and says why it cannot have those of several", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const all = (name: string, selectors: object[]) => {
      const exactly = { deviceClassName: "millpond.dev", allocationMode: "All", selectors };
      const spec = { devices: { requests: [{ name: "gpus", exactly }] } };
      return resource().createNamespacedResourceClaim({
        namespace: "default",
        body: { metadata: { name }, spec },
      });
    };
    const selectors = asks({}, "gpu-b").devices.requests.flatMap(({ exactly }) => exactly.selectors);
    await all("all-of-one", selectors);
    await makePod("has-all", { resourceClaimName: "all-of-one" });
    await cluster.until("it is bound", async () => (await condition("has-all"))?.status === "True");
    expect(await poolClaims()).toMatchObject([
      { gpus: 1, memoryBytes: 16n * GiB, computePercent: 100, allocation: { node: "gpu-b" } },
    ]);
    await cluster.core.deleteNamespacedPod({ name: "has-all", namespace: "default" });
    await cluster.until("it is given back", async () => (await poolClaims()).length === 0);
    await all("all-of-several", []);
    await makePod("has-none", { resourceClaimName: "all-of-several" });
    await cluster.until(
      "it says why",
      async () =>
        (await condition("has-none"))?.message?.includes("matchAttribute: millpond.dev/node") === true,
    );
    expect(await poolClaims()).toEqual([]);
    await cluster.core.deleteNamespacedPod({ name: "has-none", namespace: "default" });
    for (const name of ["all-of-one", "all-of-several"])
      await resource().deleteNamespacedResourceClaim({ name, namespace: "default" });
  });

  test("a pod whose containers do not use its ResourceClaim is refused with the way to use it", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const body = {
      metadata: { name: "unused" },
      spec: { spec: asks({ cores: "10", memory: "1Gi" }, "gpu-a") },
    };
    await resource().createNamespacedResourceClaimTemplate({ namespace: "default", body });
    const made = cluster.createPod(
      "unused",
      { cpu: "1" },
      { spec: { resourceClaims: [{ name: "gpu", resourceClaimTemplateName: "unused" }] } },
    );
    await expect(made).rejects.toThrow(/no container uses it\..* claims: \[\{name: gpu\}\]/);
    expect(await poolClaims()).toEqual([]);
  });

  test("a claim of its own that two pods share is one of the pool, and waits where the pool has given the device away", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const { claims } = cluster.pool.connect();
    await claims.createClaim({
      claim: { name: "outside", onlyNode: "gpu-a", memoryBytes: 14n * GiB, leaseSeconds: 3600 },
    });
    const body = { metadata: { name: "shared" }, spec: asks({ cores: "10", memory: "4Gi" }, "gpu-a") };
    await resource().createNamespacedResourceClaim({ namespace: "default", body });
    for (const name of ["one", "two"]) await makePod(name, { resourceClaimName: "shared" });
    await cluster.until("it says why it waits", async () => {
      const said = await condition("one");
      return said?.reason === "Waiting" && /4 GiB/.test(said.message ?? "");
    });
    const { metadata } = await resource().readNamespacedResourceClaim({
      name: "shared",
      namespace: "default",
    });
    expect(metadata?.annotations?.["millpond.dev/claim"]).toBeUndefined();
    expect(metadata?.annotations?.["millpond.dev/waits"]).toMatch(/GiB/);
    await claims.releaseClaim({ name: "outside" });
    for (const name of ["one", "two"])
      await cluster.until(`${name} is bound`, async () => (await condition(name))?.status === "True");
    expect((await poolClaims()).map(({ gpus, memoryBytes }) => [gpus, memoryBytes])).toEqual([[1, 4n * GiB]]);
    await cluster.core.deleteNamespacedPod({ name: "one", namespace: "default" });
    await cluster.core.deleteNamespacedPod({ name: "two", namespace: "default" });
    await cluster.until("it is given back", async () => (await poolClaims()).length === 0);
  });

  test("the extended resource of our device class is a whole device, with the pool's queue before it", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const pod = await cluster.createPod("extended", {
      "deviceclass.resource.kubernetes.io/millpond.dev": "1",
    });
    expect(pod.spec?.containers[0]?.resources?.limits ?? {}).toEqual({});
    await cluster.until("it is bound", async () => (await condition("extended"))?.status === "True");
    await cluster.until(
      "it is scheduled",
      async () => (await cluster.pod("extended"))?.spec?.nodeName !== undefined,
    );
    expect(await poolClaims()).toMatchObject([{ allocation: { devices: [{ computePercent: 100 }] } }]);
    await cluster.core.deleteNamespacedPod({ name: "extended", namespace: "default" });
    await cluster.until("it is given back", async () => (await poolClaims()).length === 0);
  });

  test("the extended resource of another class of our devices has the class's devices", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    if (cluster.minor < 36) context.skip("limits do not name classes");
    const expression = 'device.driver == "millpond.dev" && device.attributes["millpond.dev"].node == "gpu-b"';
    const spec = { selectors: [{ cel: { expression } }], extendedResourceName: "example.org/gpu-of-b" };
    await resource().createDeviceClass({ body: { metadata: { name: "of-b" }, spec } });
    const limits = { "example.org/gpu-of-b": "1" };
    const name = "by-class";
    // The webhooks are updated a moment after the class.
    await cluster.until("such pods are prepared", async () => {
      const containers = [{ name: "main", image: "example.org/none", resources: { limits } }];
      const body = { metadata: { name }, spec: { containers } };
      const tried = await cluster.core.createNamespacedPod({ namespace: "default", dryRun: "All", body });
      return tried.metadata?.labels?.["millpond.dev/managed"] !== undefined;
    });
    await cluster.createPod(name, limits);
    await cluster.until("it is bound", async () => (await condition(name))?.status === "True");
    expect(await poolClaims()).toMatchObject([
      { name: expect.stringMatching(/^rc-/), allocation: { node: "gpu-b" } },
    ]);
    await cluster.core.deleteNamespacedPod({ name, namespace: "default" });
    await cluster.until("it is given back", async () => (await poolClaims()).length === 0);
    await resource().deleteDeviceClass({ name: "of-b" });
  });

  test("a class that selects our devices in other words is one of the pool's, also for a pod that follows it at once", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const expressions = [
      '"millpond.dev" == device.driver',
      "device.driver in ['millpond.dev']",
      'device.attributes["millpond.dev"].node == "gpu-b"',
    ];
    for (const [index, expression] of expressions.entries()) {
      const name = `worded-${index}`;
      const classBody = { metadata: { name }, spec: { selectors: [{ cel: { expression } }] } };
      await resource().createDeviceClass({ body: classBody });
      const exactly = { deviceClassName: name, capacity: { requests: { cores: "5", memory: "1Gi" } } };
      const spec = { spec: { devices: { requests: [{ name: "gpu", exactly }] } } };
      const body = { metadata: { name }, spec };
      await resource().createNamespacedResourceClaimTemplate({ namespace: "default", body });
      await makePod(name, { resourceClaimTemplateName: name });
      await cluster.until(`${name} is bound`, async () => (await condition(name))?.status === "True");
      await cluster.core.deleteNamespacedPod({ name, namespace: "default" });
      await cluster.until("it is given back", async () => (await poolClaims()).length === 0);
    }
  });

  test("ResourceClaims and templates that nothing can meet are refused, and those of other drivers are not looked at", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const [operator] = cluster.operators;
    const attempt = async (spec: object) => {
      const said: string[] = [];
      const metadata = { name: "wrong" };
      for (const make of [
        () => resource().createNamespacedResourceClaim({ namespace: "default", body: { metadata, spec } }),
        () =>
          resource().createNamespacedResourceClaimTemplate({
            namespace: "default",
            body: { metadata, spec: { spec } },
          }),
      ])
        said.push(await make().then(() => "taken", describeFailure));
      return said;
    };
    for (const [requests, reason] of [
      [{ cores: "12.5" }, "not a whole number"],
      [{ cores: "500m", memory: "1Gi" }, "not a whole number"],
      [{ cores: "0" }, "1 and 100"],
      [{ cores: "101" }, "1 and 100"],
      [{ memory: "0" }, "less than 1Mi"],
      [{ memory: "17Gi" }, "MILLPOND_E_IMPOSSIBLE"],
      [{ slots: "1" }, "cores and memory"],
    ] as const) {
      for (const said of await attempt(asks({ ...requests }, "gpu-b"))) {
        expect(said).toContain(reason);
        expect(said).toMatch(/denied the request: .*\. .* \[MILLPOND_E_[A-Z]+\]$/);
      }
    }
    const reviews = operator?.reviews;
    const other = { devices: { requests: [{ name: "nic", exactly: { deviceClassName: "nics" } }] } };
    expect(await attempt(other)).toEqual(["taken", "taken"]);
    expect(operator?.reviews).toBe(reviews);
    await resource().deleteNamespacedResourceClaim({ namespace: "default", name: "wrong" });
    await resource().deleteNamespacedResourceClaimTemplate({ namespace: "default", name: "wrong" });
  });

  test("a pod that was created before its template is told to be created again, and gets nothing", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    await makePod("early", { resourceClaimTemplateName: "later" });
    const spec = asks({ cores: "5", memory: "1Gi" }, "gpu-b");
    const body = { metadata: { name: "later" }, spec: { spec } };
    await resource().createNamespacedResourceClaimTemplate({ namespace: "default", body });
    const waits = async () => {
      const { items } = await resource().listNamespacedResourceClaim({ namespace: "default" });
      return items.map(({ metadata }) => metadata?.annotations?.["millpond.dev/waits"] ?? "").join();
    };
    await cluster.until("it is said", async () =>
      (await waits()).includes("the pod early was created before"),
    );
    expect(await poolClaims()).toEqual([]);
    await cluster.core.deleteNamespacedPod({ name: "early", namespace: "default" });
    await cluster.until("it has gone", async () => (await cluster.pod("early")) === undefined);
    await makePod("early", { resourceClaimTemplateName: "later" });
    await cluster.until("it is bound", async () => (await condition("early"))?.status === "True");
    await cluster.core.deleteNamespacedPod({ name: "early", namespace: "default" });
    await cluster.until("it is given back", async () => (await poolClaims()).length === 0);
  });

  test("pods whose claim has been taken are ended; pods that forge what the webhook writes are refused", async (context) => {
    if (!hasClaims()) context.skip("there are no ResourceClaims");
    const spec = asks({ memory: "1Gi", cores: "5" }, "gpu-b");
    const body = { metadata: { name: "small" }, spec: { spec } };
    await resource().createNamespacedResourceClaimTemplate({ namespace: "default", body });
    await makePod("robbed", { resourceClaimTemplateName: "small" });
    await cluster.until("it is bound", async () => (await condition("robbed"))?.status === "True");
    const [claim] = await poolClaims();
    await cluster.pool.connect().claims.releaseClaim({ name: claim?.name ?? "" });
    await cluster.until("it has been ended", async () => (await cluster.pod("robbed")) === undefined);
    const forged = cluster.createPod(
      "forged",
      { cpu: "1" },
      {
        labels: { "millpond.dev/managed": "true" },
        annotations: {
          "millpond.dev/claims": '[{"claim":"gpu","containers":["main"]}]',
          "millpond.dev/id": "0123456789abcdef",
        },
      },
    );
    await expect(forged).rejects.toThrow(/no container of it asks for the pool/);
  });
});

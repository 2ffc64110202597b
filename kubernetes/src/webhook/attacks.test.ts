// SPDX-License-Identifier: Apache-2.0

// Unusual and hostile requests of administrators and tenants, on a real control plane.

import type { V1Pod } from "@kubernetes/client-node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { asStrategicPatch, describeFailure } from "../cluster/cluster.ts";
import { findKubernetes, withKubernetes } from "../testing/control-plane.ts";
import { TestCluster } from "../testing/test-cluster.ts";

const GiB = 1n << 30n;
const namespace = "default";
const one = { "millpond.dev/vgpu": "1" };

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await TestCluster.start({ "gpu-a": [16n * GiB, 16n * GiB] });
    await cluster.startOperator();
    await cluster.addNode("worker-1");
    await cluster.createPod("probe", one);
    await cluster.until("the pool is known", () => isBound("probe"));
    await cluster.core.deleteNamespacedPod({ namespace, name: "probe" });
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
  });
  const isBound = async (name: string) =>
    (await cluster.pod(name))?.status?.conditions?.some(
      ({ type, status }) => type === "millpond.dev/Bound" && status === "True",
    ) === true;
  const outcome = (attempt: Promise<unknown>) =>
    attempt.then(
      () => "taken",
      (error: unknown) => describeFailure(error),
    );
  const make = (body: V1Pod) => outcome(cluster.core.createNamespacedPod({ namespace, body }));
  const pod = (container: object, spec: object = {}, metadata: object = {}): V1Pod => ({
    metadata: { name: "hostile", ...metadata },
    spec: { containers: [{ name: "main", image: "x", ...container }], ...spec },
  });

  const huge = "9".repeat(19);
  beforeEach(({ skip }) => skip(cluster.minor < 34, `Kubernetes 1.${cluster.minor} answers otherwise`));

  test.each<[string, V1Pod]>([
    ["a negative number", pod({ resources: { limits: { "millpond.dev/vgpu": "-1" } } })],
    ["a negative memory", pod({ resources: { limits: { ...one, "millpond.dev/memory": "-8Gi" } } })],
    ["a fraction", pod({ resources: { limits: { "millpond.dev/compute": "12.5" } } })],
    ["millis", pod({ resources: { limits: { "millpond.dev/compute": "30m" } } })],
    ["a huge number", pod({ resources: { limits: { "millpond.dev/vgpu": huge } } })],
    ["a huge exponent", pod({ resources: { limits: { "millpond.dev/memory": "1e18" } } })],
    ["exbibytes", pod({ resources: { limits: { "millpond.dev/memory": "9Ei" } } })],
    ["nanos that are whole", pod({ resources: { limits: { "millpond.dev/vgpu": "65000000000n" } } })],
    ["requests alone", pod({ resources: { requests: one } })],
    ["another request", pod({ resources: { limits: { "millpond.dev/vgpu": "2" }, requests: one } })],
    [
      "a request of another resource",
      pod({ resources: { limits: one, requests: { "millpond.dev/memory": "1Gi" } } }),
    ],
    ["a resource twice", pod({ resources: { limits: { ...one, "pool.kubernetes.io/gpu": "1" } } })],
    ["a limit of the pod", pod({}, { resources: { limits: one } })],
    [
      "17 containers",
      pod(
        { resources: { limits: one } },
        {
          containers: Array.from({ length: 17 }, (_, index) => ({
            name: `c${index}`,
            image: "x",
            resources: { limits: one },
          })),
        },
      ),
    ],
    [
      "a request in Arabic digits",
      pod({ resources: { limits: one } }, {}, { annotations: { "millpond.dev/gang-size": "٢" } }),
    ],
    [
      "a queue of control characters",
      pod(
        { resources: { limits: one } },
        {},
        { annotations: { "millpond.dev/queue": "a\u0000\u202e\n[x]" } },
      ),
    ],
    [
      "a gang of a million",
      pod(
        { resources: { limits: one } },
        {},
        { annotations: { "millpond.dev/gang": "g", "millpond.dev/gang-size": "1000000" } },
      ),
    ],
    [
      "a prototype's name",
      pod(
        { resources: { limits: one } },
        {},
        { annotations: { "millpond.dev/__proto__": "x", "millpond.dev/constructor": "y" } },
      ),
    ],
    [
      "a resize of a huge size",
      pod(
        { resources: { limits: one } },
        {},
        { annotations: { "millpond.dev/resize": `memory=${"9".repeat(200)}` } },
      ),
    ],
    [
      "labels at the node selector",
      pod({ resources: { limits: one } }, {}, { annotations: { "millpond.dev/node-labels": "=\u202e" } }),
    ],
    ["a node", pod({ resources: { limits: one } }, { nodeName: "worker-1" })],
    [
      "a mirror",
      pod(
        { resources: { limits: one } },
        { nodeName: "worker-1" },
        { annotations: { "kubernetes.io/config.mirror": "a", "kubernetes.io/config.source": "file" } },
      ),
    ],
    [
      "a gate that it opened itself",
      pod(
        { resources: { limits: one } },
        {},
        { annotations: { "millpond.dev/gpu-node": "gpu-a" }, labels: { "millpond.dev/managed": "true" } },
      ),
    ],
    [
      "a token by a projected volume",
      pod(
        { resources: { limits: one } },
        {
          volumes: [
            { name: "v", projected: { sources: [{ secret: { name: "millpond-0123456789abcdef" } }] } },
          ],
        },
      ),
    ],
    [
      "the claim of another by its name",
      pod(
        { resources: { claims: [{ name: "c" }] } },
        { resourceClaims: [{ name: "c", resourceClaimName: "millpond-0123456789abcdef-0" }] },
      ),
    ],
    [
      "the name of our claim reference",
      pod(
        { resources: { limits: one, claims: [{ name: "millpond-0" }] } },
        { resourceClaims: [{ name: "millpond-0", resourceClaimName: "mine" }] },
      ),
    ],
    [
      "its UID in its environment",
      pod({ resources: { limits: one }, env: [{ name: "MILLPOND_POD_UID", value: "x" }] }),
    ],
  ])("a pod with %s is refused with a reason", async (what, body) => {
    const said = await make(body);
    // Two of them violate rules of Kubernetes itself.
    const isTheirs = what === "a limit of the pod" || what === "the name of our claim reference";
    expect(said).toMatch(
      isTheirs ? /^Pod "hostile" is invalid/ : /denied the request: .*\. .* \[MILLPOND_E_[A-Z_]+\]$/su,
    );
  });

  test("no subresource of a pod changes what is Millpond's on it, nor places one that waits", async () => {
    await cluster.createPod("calm", { ...one, "millpond.dev/memory": "1Gi" });
    await cluster.until("it is bound", () => isBound("calm"));
    await cluster.createPod("waits", { "millpond.dev/vgpu": "2" });
    const annotationsOf = async (name: string) => (await cluster.pod(name))?.metadata?.annotations;
    const before = [await annotationsOf("calm"), (await annotationsOf("waits"))?.["millpond.dev/request"]];
    const annotations = { "millpond.dev/request": '[{"gpus":8,"containers":["main"]}]' };
    const body = { metadata: { annotations } };
    const at = { namespace, name: "calm" };
    const debug = { ...body, spec: { ephemeralContainers: [{ name: "debug", image: "x" }] } };
    const larger = { ...body, spec: { containers: [{ name: "main", resources: { limits: one } }] } };
    const bind = (name: string) => ({
      metadata: { name, annotations },
      target: { kind: "Node", name: "worker-1" },
    });
    const { core } = cluster;
    const said = [
      await outcome(core.patchNamespacedPodStatus({ ...at, body }, asStrategicPatch)),
      await outcome(core.patchNamespacedPodResize({ ...at, body: larger }, asStrategicPatch)),
      // Accepted, without the metadata.
      await outcome(core.patchNamespacedPodEphemeralcontainers({ ...at, body: debug }, asStrategicPatch)),
      await outcome(core.createNamespacedPodBinding({ ...at, body: bind("calm") })),
      await outcome(core.createNamespacedPodBinding({ namespace, name: "waits", body: bind("waits") })),
    ];
    expect(said).toEqual([
      expect.stringContaining("MILLPOND_E_FORBIDDEN"),
      expect.stringContaining("only cpu and memory"),
      "taken",
      expect.stringMatching(/assigned|cannot be fulfilled/),
      expect.stringContaining("schedulingGates"),
    ]);
    expect([await annotationsOf("calm"), (await annotationsOf("waits"))?.["millpond.dev/request"]]).toEqual(
      before,
    );
  });

  test("a pod that asks for nothing is made, however large it is", async () => {
    const reviews = cluster.operators[0]?.reviews;
    const env = Array.from({ length: 5000 }, (_, index) => ({ name: `V${index}`, value: "x" }));
    const volumes = Array.from({ length: 500 }, (_, index) => ({ name: `v${index}`, emptyDir: {} }));
    expect(await make(pod({ env }, { volumes }))).toBe("taken");
    expect(cluster.operators[0]?.reviews).toBe(reviews);
    await cluster.core.deleteNamespacedPod({ namespace, name: "hostile", gracePeriodSeconds: 0 });
  });

  test("nothing is left of all that, and the next pod is bound", async () => {
    const { items } = await cluster.core.listNamespacedPod({ namespace });
    expect(new Set(items.map(({ metadata }) => metadata?.name))).toEqual(new Set(["calm", "waits"]));
    for (const name of ["calm", "waits"]) await cluster.core.deleteNamespacedPod({ namespace, name });
    const { claims } = cluster.pool.connect();
    await cluster.until("no claim is left", async () => (await claims.listClaims({})).claims.length === 0);
    await cluster.createPod("next", one);
    await cluster.until("it is bound", () => isBound("next"));
  });
});

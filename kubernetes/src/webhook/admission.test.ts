// SPDX-License-Identifier: Apache-2.0

import { request as httpsRequest } from "node:https";
import type { V1Namespace, V1Pod } from "@kubernetes/client-node";
import { X509Certificate } from "node:crypto";
import { expect, onTestFinished, test } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { tenancyOf } from "../request/tenancy.ts";
import { testLog } from "../testing/test-pool.ts";
import { type AdmissionPolicy, reviewMutation, reviewUserClaims, reviewValidation } from "./admission.ts";
import { WebhookServer } from "./server.ts";
import { renewFiles } from "./serving-certificate.ts";

const names = makeResourceNames();
const policy: AdmissionPolicy = {
  names,
  allocation: "dra",
  isGated: true,
  systemNamespace: "millpond-system",
  operatorUser: "system:serviceaccount:millpond-system:millpond-operator",
  limits: () => ({ largestDeviceBytes: 141n << 30n, mostDevices: 8, queues: ["default", "vision"] }),
  userClaimsOf: () => Promise.resolve([]),
  isClassOfPool: (name) => name === "millpond.dev" || name === "half",
  canMakePods: () => Promise.resolve(false),
  tenancyOf: (name) =>
    Promise.resolve(
      tenancyOf(names, namespaceOf(name, name === "team-a" ? { "millpond.dev/queues": "vision" } : {}), []),
    ),
};

function namespaceOf(name: string, annotations: Record<string, string>): V1Namespace {
  return { metadata: { name, annotations } };
}

function asking(
  more: Partial<V1Pod> = {},
  limits: Record<string, string> = { "millpond.dev/vgpu": "1" },
): V1Pod {
  return {
    metadata: { name: "p", ...more.metadata },
    spec: { containers: [{ name: "main", image: "x", resources: { limits } }], ...more.spec },
  };
}

function review(object: V1Pod, more: object = {}) {
  return {
    apiVersion: "admission.k8s.io/v1",
    request: { uid: "u1", operation: "CREATE", namespace: "default", object, ...more },
  };
}

/** The pod after the patch, applied as RFC 6902 defines `add`. */
async function mutated(pod: V1Pod, with_: AdmissionPolicy = policy): Promise<V1Pod> {
  const { response } = await reviewMutation(with_, review(pod));
  expect(response.status?.message).toBeUndefined();
  const copy = structuredClone(pod);
  const patch = JSON.parse(Buffer.from(response.patch ?? "", "base64").toString() || "[]") as {
    path: string;
    value: unknown;
  }[];
  for (const { path, value } of patch) {
    const parts = path.split("/").slice(1);
    const last = parts.pop() ?? "";
    let target = copy as unknown as Record<string, unknown>;
    for (const part of parts) target = target[part] as Record<string, unknown>;
    target[last] = value;
  }
  return copy;
}

test("a pod that asks is given a gate, a claim, and what its program needs", async () => {
  const pod = asking({}, { cpu: "1", "millpond.dev/vgpu": "1", "millpond.dev/memory": "4Gi" });
  const { metadata, spec } = await mutated(pod);
  const id = metadata?.annotations?.["millpond.dev/id"] ?? "";
  expect(id).toMatch(/^[0-9a-f]{16}$/);
  expect(metadata?.labels).toEqual({ "millpond.dev/managed": "true" });
  expect(spec?.schedulingGates).toEqual([{ name: "millpond.dev/queue" }]);
  expect(spec?.resourceClaims).toEqual([{ name: "millpond-0", resourceClaimName: `millpond-${id}-0` }]);
  const [main] = spec?.containers ?? [];
  expect(main?.resources).toEqual({ limits: { cpu: "1" }, claims: [{ name: "millpond-0" }] });
  expect(main?.env?.map(({ name }) => name)).toEqual([
    "MILLPOND_POD_UID",
    "MILLPOND_CLAIM",
    "MILLPOND_CONTROLLER",
    "MILLPOND_CA",
    "MILLPOND_TOKEN",
  ]);
  expect(main?.env?.[4]?.valueFrom?.secretKeyRef).toEqual({ name: `millpond-${id}`, key: "token-0" });
  expect(
    reviewValidation(policy, review({ metadata: metadata ?? {}, spec: spec ?? null } as V1Pod)).response
      .allowed,
  ).toBe(true);
});

test("with a device plugin the container keeps one resource, which gives it the library", async () => {
  const devicePlugin: AdmissionPolicy = { ...policy, allocation: "device-plugin", isGated: false };
  const { spec } = await mutated(
    asking({}, { "millpond.dev/vgpu": "2", "millpond.dev/compute": "30" }),
    devicePlugin,
  );
  expect(spec?.containers[0]?.resources).toEqual({ limits: { "millpond.dev/vgpu": "2" } });
  expect(spec?.schedulingGates).toBeUndefined();
  expect(spec?.resourceClaims).toBeUndefined();
});

test("the program's own library path stays behind ours, and what the pod has stays", async () => {
  const pod = asking({
    spec: {
      schedulingGates: [{ name: "other.org/gate" }],
      containers: [
        { name: "plain", image: "x" },
        {
          name: "main",
          image: "x",
          env: [
            { name: "LD_LIBRARY_PATH", value: "/opt/lib" },
            { name: "MODE", value: "fast" },
          ],
          resources: { limits: { "millpond.dev/vgpu": "1" } },
        },
      ],
    },
    metadata: { name: "p", labels: { app: "web" }, annotations: { note: "x" } },
  });
  const { metadata, spec } = await mutated(pod);
  expect(spec?.containers[0]).toEqual({ name: "plain", image: "x" });
  expect(spec?.containers[1]?.env?.slice(5)).toEqual([
    { name: "LD_LIBRARY_PATH", value: "/usr/lib/millpond:/opt/lib" },
    { name: "MODE", value: "fast" },
  ]);
  expect(spec?.schedulingGates).toEqual([{ name: "other.org/gate" }, { name: "millpond.dev/queue" }]);
  expect(metadata?.labels).toMatchObject({ app: "web" });
  expect(metadata?.annotations).toMatchObject({ note: "x" });
});

test.each<[string, V1Pod, RegExp, object?]>([
  ["a fraction", asking({}, { "millpond.dev/vgpu": "500m" }), /not a whole number.*\[MILLPOND_E_INVALID\]$/],
  [
    "a fraction in requests",
    asking({
      spec: {
        containers: [
          {
            name: "main",
            image: "x",
            resources: { limits: { "millpond.dev/vgpu": "1" }, requests: { "millpond.dev/vgpu": "500m" } },
          },
        ],
      },
    }),
    /the container "main" .*not a whole number.*\[MILLPOND_E_INVALID\]$/,
  ],
  ["zero", asking({}, { "millpond.dev/vgpu": "0" }), /from 1 to 64.*\[MILLPOND_E_INVALID\]$/],
  [
    "too much memory",
    asking({}, { "millpond.dev/memory": "200Gi" }),
    /200 GiB .* largest device of the pool has 141 GiB.*\[MILLPOND_E_IMPOSSIBLE\]$/,
  ],
  [
    "too many devices",
    asking({}, { "millpond.dev/vgpu": "9" }),
    /9 vGPUs on one node, and no node of the pool has more than 8/,
  ],
  [
    "an unknown queue",
    asking({ metadata: { annotations: { "millpond.dev/queue": "nowhere" } } }),
    /no queue "nowhere".*default, vision.*\[MILLPOND_E_NOT_FOUND\]$/,
  ],
  [
    "another tenant's queue",
    asking({ metadata: { annotations: { "millpond.dev/queue": "default" } } }),
    /may not wait in the queue "default".*Use one of its own: vision.*\[MILLPOND_E_FORBIDDEN\]$/,
    { namespace: "team-a" },
  ],
  [
    "an annotation that the webhook writes",
    asking({ metadata: { annotations: { "millpond.dev/request": '[{"gpus":64,"containers":["main"]}]' } } }),
    /is unknown/,
  ],
  [
    "a variable that Millpond sets",
    asking({
      spec: {
        containers: [
          {
            name: "main",
            image: "x",
            env: [{ name: "MILLPOND_CLAIM", value: "claim-of-another" }],
            resources: { limits: { "millpond.dev/vgpu": "1" } },
          },
        ],
      },
    }),
    /sets MILLPOND_CLAIM, which Millpond sets/,
  ],
  ...["MILLPOND_TOKEN", "MILLPOND_CONTROLLER", "MILLPOND_WORKER", "MILLPOND_MEMORY", "MILLPOND_COMPUTE"].map(
    (name): [string, V1Pod, RegExp] => [
      `another ${name}, in an init container`,
      asking({
        spec: {
          containers: [{ name: "main", image: "x", resources: { limits: { "millpond.dev/vgpu": "1" } } }],
          initContainers: [
            {
              name: "first",
              image: "x",
              env: [{ name, value: "99" }],
              resources: { limits: { "millpond.dev/vgpu": "1" } },
            },
          ],
        },
      }),
      new RegExp(`"first" sets ${name}, which Millpond sets`),
    ],
  ),
  [
    "a node of its own choice, past the gate",
    asking({
      spec: {
        nodeName: "worker-1",
        containers: [{ name: "main", image: "x", resources: { limits: { "millpond.dev/vgpu": "1" } } }],
      },
    }),
    /names its node, "worker-1".*nodeSelector or affinity/,
  ],
])("%s is refused at admission, in the house form", async (_what, pod, message, more) => {
  const { response } = await reviewMutation(policy, review(pod, more));
  expect(response).toMatchObject({ uid: "u1", allowed: false });
  expect(response.status?.message).toMatch(message);
  expect(response.status?.message).toMatch(/^[^\n]+ \[MILLPOND_E_[A-Z_]+\]$/);
});

test("nothing is checked against a pool that does not answer, and a pod that asks for nothing is let through", async () => {
  const blind: AdmissionPolicy = { ...policy, limits: () => undefined };
  expect(
    (await reviewMutation(blind, review(asking({}, { "millpond.dev/memory": "200Gi" })))).response.allowed,
  ).toBe(true);
  expect((await reviewMutation(policy, review(asking({}, { cpu: "1" })))).response).toEqual({
    uid: "u1",
    allowed: true,
  });
});

test("a pod that came past the mutating webhook is refused", async () => {
  const refused = (pod: V1Pod) => reviewValidation(policy, review(pod)).response.status?.message;
  expect(refused(asking())).toMatch(/has not prepared the pod/);
  expect(refused(asking({ metadata: { labels: { "millpond.dev/managed": "true" } } }, {}))).toMatch(
    /asks for nothing/,
  );
  const prepared = await mutated(asking());
  prepared.spec?.containers.push({
    name: "late",
    image: "x",
    resources: { limits: { "millpond.dev/vgpu": "1" } },
  });
  expect(refused(prepared)).toMatch(/"late" got a limit of millpond\.dev\/vgpu after/);
});

test.each([
  "/run/millpond",
  "/run",
  "/",
  "/var/lib/kubelet/plugins",
  "/var/lib/../lib/millpond/x",
  "/run//millpond/",
])("a pod that uses the pool does not get %s of its host", async (path) => {
  const pod = await mutated(asking());
  pod.spec?.containers.push();
  if (pod.spec !== undefined) pod.spec.volumes = [{ name: "v", hostPath: { path } }];
  expect(reviewValidation(policy, review(pod)).response.status?.message).toMatch(/the volume "v" shows/);
  if (pod.spec !== undefined) pod.spec.volumes = [{ name: "v", hostPath: { path: "/run/millponds" } }];
  expect(reviewValidation(policy, review(pod)).response.allowed).toBe(true);
});

test("of a pod that waits or runs, only its size can be changed by others than the operator", async () => {
  const before = await mutated(asking({ metadata: { annotations: { "millpond.dev/queue": "vision" } } }));
  const change = (edit: (pod: V1Pod) => void, username = "ann") => {
    const after = structuredClone(before);
    edit(after);
    const request = { operation: "UPDATE", oldObject: before, userInfo: { username } };
    return reviewValidation(policy, review(after, request)).response;
  };
  const annotate = (key: string, value: string) => (pod: V1Pod) => {
    pod.metadata = { ...pod.metadata, annotations: { ...pod.metadata?.annotations, [key]: value } };
  };
  const openGate = (pod: V1Pod) => {
    if (pod.spec !== undefined) pod.spec.schedulingGates = [];
  };
  const unlabel = (pod: V1Pod) => {
    pod.metadata = { ...pod.metadata, labels: {} };
  };
  for (const edit of [
    openGate,
    unlabel,
    annotate("millpond.dev/request", "[]"),
    annotate("millpond.dev/queue", "default"),
    annotate("millpond.dev/preemptible", "false"),
  ]) {
    expect(change(edit).status).toMatchObject({
      code: 403,
      message: expect.stringContaining("MILLPOND_E_FORBIDDEN"),
    });
    expect(change(edit, policy.operatorUser).allowed).toBe(true);
  }
  expect(change(annotate("note", "x")).allowed).toBe(true);
  expect(change(annotate("millpond.dev/resize", "memory=24Gi,compute=40")).allowed).toBe(true);
  expect(change(annotate("millpond.dev/resize", "gpus=2")).status?.message).toMatch(/"gpus=2" is not a size/);
});

const otherSecret = "millpond-0123456789abcdef";

test.each<[string, Partial<NonNullable<V1Pod["spec"]>>]>([
  ["a volume", { volumes: [{ name: "v", secret: { secretName: otherSecret } }] }],
  [
    "a projected volume",
    { volumes: [{ name: "v", projected: { sources: [{ secret: { name: otherSecret } }] } }] },
  ],
  [
    "a variable",
    {
      containers: [
        {
          name: "main",
          image: "x",
          env: [{ name: "X", valueFrom: { secretKeyRef: { name: otherSecret, key: "token-0" } } }],
        },
      ],
    },
  ],
  [
    "all variables of an init container",
    { initContainers: [{ name: "i", image: "x", envFrom: [{ secretRef: { name: otherSecret } }] }] },
  ],
])("the token of another pod is not read by %s, whether the pod uses the pool or not", async (_way, spec) => {
  const refused = (pod: V1Pod) => reviewValidation(policy, review(pod)).response.status;
  const plain: V1Pod = {
    metadata: { name: "p" },
    spec: { containers: [{ name: "main", image: "x" }], ...spec },
  };
  expect(refused(plain)).toMatchObject({ code: 403, message: expect.stringContaining(otherSecret) });
  const prepared = await mutated(asking());
  const [main] = prepared.spec?.containers ?? [];
  const containers = main === undefined ? [] : [main, ...(spec.containers ?? [])];
  expect(refused({ ...prepared, spec: { ...prepared.spec, ...spec, containers } })?.code).toBe(403);
  const own = `millpond-${prepared.metadata?.annotations?.["millpond.dev/id"]}`;
  const reading = JSON.parse(JSON.stringify(plain).replaceAll(otherSecret, "millpond-of-the-team")) as V1Pod;
  expect(refused(reading)).toBeUndefined();
  expect(main?.env?.some(({ valueFrom }) => valueFrom?.secretKeyRef?.name === own)).toBe(true);
});

test("a pod does not share the ResourceClaim that the operator makes for another one", async () => {
  const foreign = { name: "gpu", resourceClaimName: `${otherSecret}-0` };
  const plain: V1Pod = {
    metadata: { name: "p" },
    spec: { containers: [{ name: "main", image: "x" }], resourceClaims: [foreign] },
  };
  const answer = await reviewUserClaims(policy, review(plain));
  expect(answer.response.status).toMatchObject({ code: 403, message: expect.stringContaining(otherSecret) });
  const prepared = await mutated(asking());
  expect(reviewValidation(policy, review(prepared)).response.allowed).toBe(true);
  prepared.spec?.resourceClaims?.push(foreign);
  expect(reviewValidation(policy, review(prepared)).response.status?.code).toBe(403);
  const own = { name: "gpu", resourceClaimName: "millpond-of-the-team" };
  const { response } = await reviewUserClaims(
    policy,
    review({ ...plain, spec: { containers: [], resourceClaims: [own] } }),
  );
  expect(response.allowed).toBe(true);
});

test("pods that ask for nothing are not shown what is Millpond's, and may be shown the rest of their host", () => {
  const refused = (path: string) =>
    reviewValidation(
      policy,
      review({
        metadata: { name: "p" },
        spec: { containers: [{ name: "main", image: "x" }], volumes: [{ name: "v", hostPath: { path } }] },
      }),
    ).response.status?.message;
  for (const path of [
    "/run/millpond",
    "/run/./millpond//workers",
    "/var/run/millpond/",
    "/var/lib/millpond/client",
    "/var/lib/kubelet/plugins/millpond.dev/dra.sock",
    "/proc/1/root/run/millpond",
    "/proc/1/cwd/run/millpond",
    "/proc/1/task/1/cwd/run/millpond",
    "/proc/500/cwd/millpond",
    "/proc/1/fd/12/millpond",
  ]) {
    expect(refused(path), path).toMatch(/the volume "v" (?:shows|goes through) .* \[MILLPOND_E_INVALID\]$/);
  }
  for (const path of ["/", "/run", "/var/lib/kubelet", "/srv/millpond", "/proc/1/cwd"])
    expect(refused(path)).toBeUndefined();
});

test("only the operator says of a ResourceClaim that it is the pool's", () => {
  const claim = (annotations: Record<string, string>) => ({ metadata: { name: "c", annotations } });
  const ours = claim({ "millpond.dev/claim": "pod-1", note: "x" });
  const say = (before: object | null, after: object | null, username: string, resource = "resourceclaims") =>
    reviewValidation(policy, {
      apiVersion: "admission.k8s.io/v1",
      request: {
        uid: "u1",
        operation: before === null ? "CREATE" : "UPDATE",
        resource: { group: "resource.k8s.io", version: "v1", resource },
        userInfo: { username },
        object: after,
        oldObject: before,
      },
    }).response;
  expect(say(null, ours, policy.operatorUser).allowed).toBe(true);
  expect(say(null, ours, "ann").status).toMatchObject({
    code: 403,
    message: expect.stringContaining("millpond.dev/claim is Millpond's"),
  });
  expect(say(ours, claim({ note: "x" }), "ann").allowed).toBe(false);
  expect(say(ours, claim({ "millpond.dev/claim": "pod-2", note: "x" }), "ann").allowed).toBe(false);
  expect(say(ours, claim({ "millpond.dev/claim": "pod-1", note: "y" }), "ann").allowed).toBe(true);
  // Kubernetes copies the metadata in a template onto the ResourceClaims.
  const template = (annotations: Record<string, string>) => ({
    metadata: { name: "t" },
    spec: { metadata: { annotations }, spec: {} },
  });
  const made = (object: object, username: string) =>
    say(null, object, username, "resourceclaimtemplates").status?.message;
  expect(made(template({ "millpond.dev/epoch": "1" }), "ann")).toContain("millpond.dev/epoch is Millpond's");
  expect(made(template({ note: "x" }), "ann")).toBeUndefined();
  const controller = "system:serviceaccount:kube-system:resource-claim-controller";
  expect(say(null, claim({ "millpond.dev/epoch": "1" }), controller).status?.code).toBe(403);
});

test("certificates are renewed before they expire, and the authority before is trusted meanwhile", () => {
  const day = 86_400_000;
  const times = { authorityMs: 300 * day, serverMs: 30 * day };
  const at = (days: number) => new Date(Date.now() + days * day);
  const first = renewFiles(undefined, ["a.svc"], at(0), times);
  expect(renewFiles(first, ["a.svc"], at(19), times)).toBe(first);
  const second = renewFiles(first, ["a.svc"], at(21), times);
  expect(second.server).not.toEqual(first.server);
  expect(second.authority).toEqual(first.authority);
  expect(renewFiles(first, ["b.svc"], at(0), times).server).not.toEqual(first.server);
  const third = renewFiles(second, ["a.svc"], at(210), times);
  expect(third.authority).not.toEqual(first.authority);
  expect(third.bundle).toContain(first.authority.certificate);
  expect(third.bundle).toContain(third.authority.certificate);
  // The Secret was deleted: replicas that have not noticed yet use its old content.
  const fourth = renewFiles(undefined, ["a.svc"], at(0), times, first);
  expect(fourth.authority).not.toEqual(first.authority);
  expect(fourth.bundle).toContain(first.authority.certificate);
  expect(
    new X509Certificate(third.server.certificate).verify(
      new X509Certificate(third.authority.certificate).publicKey,
    ),
  ).toBe(true);
});

test("the server answers reviews over TLS, says whether it is ready, and takes nothing else", async () => {
  const files = renewFiles(undefined, ["127.0.0.1"], new Date());
  let isReady = false;
  const server = await WebhookServer.start({
    policy,
    certificate: files.server,
    host: "127.0.0.1",
    port: 0,
    isReady: () => isReady,
    metrics: () => "x 1\n",
    log: testLog,
  });
  onTestFinished(() => server.close());
  const call = (method: string, path: string, body = "", ca = files.bundle) =>
    new Promise<{ status: number; text: string }>((resolve, reject) => {
      const options = { method, path, host: "127.0.0.1", port: server.port, ca, agent: false };
      const request = httpsRequest(options, (response) => {
        let text = "";
        response.on("data", (part: Buffer) => (text += part.toString()));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      });
      request.on("error", reject).end(body);
    });
  expect((await call("GET", "/readyz")).status).toBe(503);
  isReady = true;
  expect((await call("GET", "/readyz")).status).toBe(200);
  expect((await call("GET", "/metrics")).text).toBe("x 1\n");
  const answer = await call("POST", "/mutate", JSON.stringify(review(asking())));
  expect([answer.status, JSON.parse(answer.text)]).toMatchObject([
    200,
    { response: { uid: "u1", allowed: true } },
  ]);
  for (const body of ["", "{", "null", "[]", '{"apiVersion":"admission.k8s.io/v1beta1"}']) {
    expect((await call("POST", "/validate", body)).status).toBe(400);
  }
  expect((await call("POST", "/mutate", `"${"x".repeat(9 << 20)}"`)).status).toBe(400);
  expect((await call("GET", "/mutate")).status).toBe(404);
  const next = renewFiles(undefined, ["127.0.0.1"], new Date());
  server.use(next.server);
  expect((await call("GET", "/healthz", "", next.bundle)).status).toBe(200);
  await expect(call("GET", "/healthz")).rejects.toThrow(/certificate/);
});

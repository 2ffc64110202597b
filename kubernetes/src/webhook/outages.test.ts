// SPDX-License-Identifier: Apache-2.0

// What else can go wrong: the webhooks' certificate is lost or expires, their registration is changed, the books of the cluster
// and of the pool differ. On a simulated API server, and on a real one where there is one.

import { get } from "node:https";
import { makeAuthority, makeServerCertificate } from "@millpond/platform";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { asMergePatch, type Cluster, describeFailure, readVersion } from "../cluster/cluster.ts";
import { findKubernetes, withKubernetes } from "../testing/control-plane.ts";
import { PlayedCluster } from "../testing/played/played-cluster.ts";
import { systemNamespace, TestCluster } from "../testing/test-cluster.ts";

const GiB = 1n << 30n;
const one = { "millpond.dev/vgpu": "1" };
const secret = { namespace: systemNamespace, name: "millpond" };
const patienceMs = 90_000;

describe.each([
  ["a simulated API server", false],
  [`a real control plane${withKubernetes}`, true],
] as const)("with %s", (_what, isReal) => {
  const isMissing = isReal && findKubernetes() === undefined;
  let cluster: PlayedCluster | TestCluster;
  let api: Cluster;
  beforeAll(async () => {
    if (isMissing) return;
    const nodes = { "gpu-a": [16n * GiB] };
    if (isReal) {
      const real = await TestCluster.start(nodes);
      [cluster, api] = [real, real.plane.cluster];
    } else {
      const played = await PlayedCluster.start(nodes);
      [cluster, api] = [played, played.server.cluster];
    }
    await cluster.startOperator();
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
  });
  const bundle = async () =>
    (await api.admission.readMutatingWebhookConfiguration({ name: "millpond" })).webhooks?.[0]?.clientConfig
      .caBundle;

  /** Creates and deletes pods that ask for the pool until the condition has held for as long as a change takes. */
  const makePodsUntil = async (isSo: () => Promise<boolean>): Promise<string[]> => {
    const refusals: string[] = [];
    const deadline = performance.now() + patienceMs;
    let heldAt: number | undefined;
    for (let count = 0; heldAt === undefined || performance.now() < heldAt + 7000; count += 1) {
      const name = `pod-${count}`;
      try {
        await cluster.createPod(name, one);
        await api.core.deleteNamespacedPod({ namespace: "default", name, gracePeriodSeconds: 0 });
      } catch (error) {
        refusals.push(describeFailure(error));
      }
      if (heldAt === undefined && (await isSo())) heldAt = performance.now();
      if (performance.now() > deadline) throw new Error(`nothing has changed after ${patienceMs} ms`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return refusals;
  };

  test.skipIf(isMissing)("no pod is refused while a lost certificate is made again", async () => {
    const before = await bundle();
    await api.core.deleteNamespacedSecret(secret);
    expect(await makePodsUntil(async () => (await bundle()) !== before)).toEqual([]);
    const { data = {} } = await api.core.readNamespacedSecret(secret);
    expect(Object.keys(data).sort()).toEqual(["bundle.crt", "ca.crt", "ca.key", "tls.crt", "tls.key"]);
  });

  test.skipIf(isMissing)("no pod is refused while one that has expired is renewed", async () => {
    const before = await bundle();
    const past = { from: new Date(Date.now() - 9 * 86_400_000), to: new Date(Date.now() - 60_000) };
    const authority = makeAuthority("Millpond webhooks", past);
    const server = makeServerCertificate(authority, ["127.0.0.1"], past);
    const stringData = {
      "bundle.crt": authority.certificate,
      "ca.crt": authority.certificate,
      "ca.key": authority.key,
      "tls.crt": server.certificate,
      "tls.key": server.key,
    };
    await api.core.patchNamespacedSecret({ ...secret, body: { stringData } }, asMergePatch);
    expect(await makePodsUntil(async () => (await bundle()) !== before)).toEqual([]);
  });

  test.skipIf(isMissing)("webhooks that somebody weakens are as before soon", async () => {
    const read = async () => [
      (await api.admission.readMutatingWebhookConfiguration({ name: "millpond" })).webhooks,
      (await api.admission.readValidatingWebhookConfiguration({ name: "millpond" })).webhooks,
    ];
    const before = await read();
    const exempted = { matchExpressions: [{ key: "skip", operator: "DoesNotExist" }] };
    const weaken = <T extends object>(webhooks: readonly T[] | undefined) =>
      webhooks?.map((each) => ({ ...each, failurePolicy: "Ignore", namespaceSelector: exempted }));
    await api.admission.patchMutatingWebhookConfiguration(
      { name: "millpond", body: { webhooks: weaken(before[0]) } },
      asMergePatch,
    );
    await api.admission.patchValidatingWebhookConfiguration(
      { name: "millpond", body: { webhooks: weaken(before[1]) } },
      asMergePatch,
    );
    expect(await read()).not.toEqual(before);
    await expect.poll(read, { timeout: patienceMs, interval: 500 }).toEqual(before);
  });

  test.skipIf(isMissing)(
    "a difference of the books is counted when it has lasted, until it is gone",
    async (context) => {
      const { minor } = await readVersion(api);
      if (minor < 34) context.skip("there are no ResourceClaims");
      const at = { namespace: "default", name: "forged" };
      // As if the pool had lost a claim: only the operator may say for which claim of the pool a ResourceClaim is.
      const asOperator = await cluster.connectAs("millpond-operator");
      const annotations = {
        "millpond.dev/claim": "pod-11111111-2222-3333-4444-555555555555",
        "millpond.dev/epoch": "1",
      };
      const exactly = { deviceClassName: "millpond.dev", allocationMode: "ExactCount", count: 1 };
      await asOperator.resource.createNamespacedResourceClaim({
        namespace: at.namespace,
        body: {
          metadata: { name: at.name, annotations },
          spec: { devices: { requests: [{ name: "gpu", exactly }] } },
        },
      });
      const result = { driver: "millpond.dev", pool: "gpu-a", device: "gpu-0", request: "gpu" };
      await api.resource.patchNamespacedResourceClaimStatus(
        { ...at, body: { status: { allocation: { devices: { results: [result] } } } } },
        asMergePatch,
      );
      const counted = async () => {
        const text = await metricsOf(cluster.operators[0]?.webhookPort ?? 0);
        return [...text.matchAll(/^millpond_operator_books_differ\{kind="([a-z-]+)"\} [1-9]/gm)].map(
          ([, kind]) => kind,
        );
      };
      await expect.poll(counted, { timeout: patienceMs, interval: 500 }).toEqual(["not-in-pool"]);
      await api.resource.deleteNamespacedResourceClaim(at);
      await expect.poll(counted, { timeout: patienceMs, interval: 500 }).toEqual([]);
    },
  );
});

function metricsOf(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const url = `https://127.0.0.1:${port}/metrics`;
    get(url, { rejectUnauthorized: false }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => (text += part));
      response.on("end", () => resolve(text));
    }).on("error", reject);
  });
}

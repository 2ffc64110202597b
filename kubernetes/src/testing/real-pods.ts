// SPDX-License-Identifier: Apache-2.0

// What tests do with pods on a real node.

import type { CoreV1Api, V1Container, V1Pod } from "@kubernetes/client-node";
import { type Claim, ClaimState } from "@millpond/api";
import { podOfClaim } from "../request/pod-claims.ts";
import type { RealCluster } from "./real-cluster.ts";

const patienceMs = 120_000;

/** A command that does not end by itself before the test does. */
export const endlessCommand = ["/usr/bin/vectoradd", "1000", "--repeat", "100000000"];

/** Limits of a container: a part of each of some vGPUs. */
export const share = (compute: number, gpus = 1) => ({
  "millpond.dev/vgpu": String(gpus),
  "millpond.dev/compute": String(compute),
  "millpond.dev/memory": "256Mi",
});

export class RealPods {
  readonly #real: RealCluster;

  constructor(real: RealCluster) {
    this.#real = real;
  }

  get #core(): CoreV1Api {
    return this.#real.cluster.core;
  }

  async liveClaims(): Promise<Claim[]> {
    const { claims } = await this.#real.pool.claims.listClaims({});
    return claims.filter(({ state }) => state !== ClaimState.RELEASED && state !== ClaimState.FAILED);
  }

  async claimOf(pod: V1Pod | undefined): Promise<Claim | undefined> {
    return (await this.liveClaims()).find(({ name }) => podOfClaim(name)?.uid === pod?.metadata?.uid);
  }

  /** Resolves when the pool has no claim any more. */
  async noneLeft(): Promise<void> {
    const { cluster } = this.#real;
    await cluster.until("no claim is left", async () => (await this.liveClaims()).length === 0, patienceMs);
  }

  /** @param metadata With the namespace; default: `default`. */
  async make(
    name: string,
    containers: V1Container[],
    spec: Partial<V1Pod["spec"]> = {},
    metadata: V1Pod["metadata"] = {},
  ): Promise<V1Pod> {
    return await this.#core.createNamespacedPod({
      namespace: metadata?.namespace ?? "default",
      body: {
        metadata: { name, ...metadata },
        spec: { restartPolicy: "Never", terminationGracePeriodSeconds: 0, ...spec, containers },
      },
    });
  }

  async hasPhase(name: string, phase: string, namespace = "default"): Promise<void> {
    const { cluster } = this.#real;
    const isSo = async () => (await cluster.pod(name, namespace))?.status?.phase === phase;
    await cluster.until(`${name} is ${phase}`, isSo, patienceMs);
  }

  async remove(name: string, namespace = "default"): Promise<void> {
    await this.#core.deleteNamespacedPod({ name, namespace });
  }

  async logOf(name: string, container = "main", namespace = "default"): Promise<string> {
    return await this.#core.readNamespacedPodLog({ namespace, name, container });
  }

  /** Message of the condition that says why the pod waits, or what it has. */
  async reasonOf(name: string, namespace = "default"): Promise<string> {
    const { status } = (await this.#real.cluster.pod(name, namespace)) ?? {};
    return status?.conditions?.find(({ type }) => type === "millpond.dev/Bound")?.message ?? "";
  }

  /** Resolves when pods can be created in the new namespace. */
  async makeNamespace(name: string): Promise<void> {
    await this.#core.createNamespace({ body: { metadata: { name } } });
    await this.#real.cluster.until(`${name} has a service account`, async () => {
      const { items } = await this.#core.listNamespacedServiceAccount({ namespace: name });
      return items.length > 0;
    });
  }
}

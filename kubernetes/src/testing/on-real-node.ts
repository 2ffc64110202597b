// SPDX-License-Identifier: Apache-2.0

// Tests of pods on a real node: each runs with ResourceClaims and with the device plugin.

import { execFile, spawnSync } from "node:child_process";
import { promisify } from "node:util";
import { AppsV1Api, BatchV1Api } from "@kubernetes/client-node";
import { afterAll, afterEach, beforeAll, describe } from "vitest";
import type { Allocation } from "../allocation.ts";
import {
  missingCluster,
  type RealCluster,
  type RealClusterOptions,
  startRealCluster,
} from "./real-cluster.ts";
import { RealPods } from "./real-pods.ts";
import type { TestCluster } from "./test-cluster.ts";

/** The cluster of a group of tests. It is there while they run, and not before. */
export interface OnRealNode {
  readonly allocation: Allocation;
  readonly real: RealCluster;
  readonly cluster: TestCluster;
  readonly pods: RealPods;
  readonly apps: AppsV1Api;
  readonly batch: BatchV1Api;
  /** Output of a command, or what it has said of its failure. */
  kubectl(...args: readonly string[]): Promise<string>;
}

export interface OnRealNodeOptions extends Omit<RealClusterOptions, "allocation"> {
  /** Whether the tests call `kubectl`. */
  readonly needsKubectl?: boolean;
}

/**
 * Describes tests by ResourceClaims on a node of the subnet, and by the device plugin on one of the next subnet. The pool has
 * two GPUs of 4 GiB on another machine. After each test the pods of `default` are deleted, and no claim may be left.
 */
export function describeOnRealNode(
  title: string,
  { needsKubectl = false, subnet, ...options }: OnRealNodeOptions,
  define: (on: OnRealNode) => void,
): void {
  const missing = missingCluster() ?? (needsKubectl ? missingKubectl() : undefined);
  describe.skipIf(missing !== undefined).each(["dra", "device-plugin"] as const)(
    `${title}, by %s${missing === undefined ? "" : ` (skipped: ${missing})`}`,
    (allocation) => {
      let started: { readonly real: RealCluster; readonly pods: RealPods } | undefined;
      const there = () => {
        if (started === undefined) throw new Error("the cluster has not been started");
        return started;
      };
      const on: OnRealNode = {
        allocation,
        get real() {
          return there().real;
        },
        get cluster() {
          return there().real.cluster;
        },
        get pods() {
          return there().pods;
        },
        get apps() {
          return there().real.cluster.plane.cluster.config.makeApiClient(AppsV1Api);
        },
        get batch() {
          return there().real.cluster.plane.cluster.config.makeApiClient(BatchV1Api);
        },
        kubectl: async (...args) => {
          const command = ["--kubeconfig", there().real.cluster.plane.kubeconfig, ...args];
          try {
            // This process connects the kubelet to the API server, so it must keep serving meanwhile.
            return (await promisify(execFile)("kubectl", command)).stdout;
          } catch (error) {
            return (error as { stderr: string }).stderr;
          }
        },
      };
      beforeAll(async () => {
        const up = ["--devices", "2", "--device-memory", "4Gi"];
        const own = allocation === "dra" ? subnet : subnet + 1;
        const real = await startRealCluster({ up, ...options, allocation, subnet: own });
        started = { real, pods: new RealPods(real) };
      });
      afterAll(async () => {
        await started?.real[Symbol.asyncDispose]();
      });
      afterEach(async () => {
        await on.cluster.core.deleteCollectionNamespacedPod({ namespace: "default", gracePeriodSeconds: 0 });
        await on.pods.noneLeft();
      });
      define(on);
    },
  );
}

function missingKubectl(): string | undefined {
  return spawnSync("kubectl", ["version", "--client"]).status === 0 ? undefined : "there is no kubectl";
}

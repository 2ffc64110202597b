// SPDX-License-Identifier: Apache-2.0

// The kubelet's plugin of the DRA driver: gives pods with our ResourceClaims the client library, and reports which
// devices of the pool are healthy.

import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { ResourceV1ResourceClaim, V1ResourceSlice } from "@kubernetes/client-node";
import type { Logger } from "pino";
import { type Cluster, describeFailure } from "../cluster/cluster.ts";
import { Reflector } from "../cluster/reflector.ts";
import { DRAResourceHealth, HealthStatus } from "../gen/kubelet/dra_health_v1alpha1_pb.ts";
import { DRAPlugin } from "../gen/kubelet/dra_v1_pb.ts";
import { DRAPlugin as DRAPluginBeta } from "../gen/kubelet/dra_v1beta1_pb.ts";
import { Registration } from "../gen/kubelet/registration_pb.ts";
import { claimKey, epochKey } from "../operator/claims/device-claims.ts";
import { waitsKey } from "../operator/claims/user-claims.ts";
import type { ResourceNames } from "../request/resource-names.ts";
import { allocatedOf, requestOf, userClaimName } from "../request/user-claims.ts";
import { type ClientLibrary, toCdi } from "./client-library.ts";
import { UnixGrpcServer } from "./unix-grpc.ts";

export interface DraPluginOptions {
  readonly cluster: Cluster;
  readonly names: ResourceNames;
  readonly library: ClientLibrary;
  /** `/var/lib/kubelet`. */
  readonly kubeletDirectory: string;
  /** `/var/run/cdi`. */
  readonly cdiDirectory: string;
  readonly log: Logger;
  /** How long a ResourceClaim waits here for the pool before the kubelet has to try again. Default 10,000. */
  readonly grantMs?: number;
}

interface ClaimReference {
  readonly namespace: string;
  readonly uid: string;
  readonly name: string;
}

interface Prepared {
  readonly devices: {
    readonly requestNames: string[];
    readonly poolName: string;
    readonly deviceName: string;
    readonly cdiDeviceIds: string[];
    readonly shareId?: string;
  }[];
  readonly error: string;
}

/**
 * After this time without a message the kubelet considers health unknown, so the plugin repeats its message earlier.
 */
const healthPeriodMs = 10_000;

const askAgainMs = 250;

/** The reason why the pool has not granted the allocation of a ResourceClaim; undefined: it has granted it. */
function whyNotGranted(names: ResourceNames, claim: ResourceV1ResourceClaim): string | undefined {
  const { annotations = {} } = claim.metadata ?? {};
  if (annotations[epochKey(names)] !== undefined) return undefined;
  const wanted = userClaimName(names.domain, claim);
  if (wanted !== undefined && annotations[claimKey(names)] === wanted) return undefined;
  const waits = annotations[waitsKey(names)] ?? "";
  return waits === "" ? "the operator has not asked it yet" : waits;
}

export class DraPlugin implements AsyncDisposable {
  readonly #options: DraPluginOptions;
  readonly #deviceId: string;
  readonly #slices: Reflector<V1ResourceSlice>;
  readonly #cleanup = new AsyncDisposableStack();
  /** Every device that was seen since the start, and whether it exists now. */
  readonly #devices = new Map<string, { readonly pool: string; readonly device: string; isThere: boolean }>();
  #wakeWatchers = Promise.withResolvers<void>();
  readonly #stop = new AbortController();
  readonly #registered = Promise.withResolvers<void>();

  private constructor(options: DraPluginOptions) {
    this.#options = options;
    this.#deviceId = toCdi(options.names.domain, options.library).deviceId;
    const { cluster, log, names } = options;
    this.#slices = new Reflector<V1ResourceSlice>({
      cluster,
      path: "/apis/resource.k8s.io/v1/resourceslices",
      fieldSelector: `spec.driver=${names.domain}`,
      list: (page) => cluster.resource.listResourceSlice(page),
      onChange: () => this.#noteDevices(),
      log,
    });
  }

  /** Resolves when the plugin is visible to the kubelet. */
  static async start(options: DraPluginOptions): Promise<DraPlugin> {
    const plugin = new DraPlugin(options);
    try {
      await plugin.#begin();
    } catch (error) {
      await plugin[Symbol.asyncDispose]();
      throw error;
    }
    return plugin;
  }

  /**
   * Resolves when the kubelet has registered the plugin for the first time. The kubelet tries earlier pods again at
   * some later time.
   */
  get registered(): Promise<void> {
    return this.#registered.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#wakeWatchers.resolve();
    await this.#cleanup.disposeAsync();
  }

  async #begin(): Promise<void> {
    const { names, kubeletDirectory, log } = this.#options;
    const { domain } = names;
    this.#writeCdi();
    this.#slices.start();
    this.#cleanup.defer(() => this.#slices.stop());
    const endpoint = join(kubeletDirectory, "plugins", domain, "dra.sock");
    this.#cleanup.use(
      await UnixGrpcServer.listen(endpoint, (router) => {
        // Every pod gets the same files, so there is nothing to undo.
        const unprepare = async (claims: readonly ClaimReference[]) => ({
          claims: await this.#forEach(claims, () => Promise.resolve({ error: "" })),
        });
        const prepare = async (claims: readonly ClaimReference[]) => ({
          claims: await this.#forEach(claims, (claim) => this.#prepare(claim)),
        });
        router.service(DRAPlugin, {
          nodePrepareResources: ({ claims }) => prepare(claims),
          nodeUnprepareResources: ({ claims }) => unprepare(claims),
        });
        router.service(DRAPluginBeta, {
          nodePrepareResources: ({ claims }) => prepare(claims),
          nodeUnprepareResources: ({ claims }) => unprepare(claims),
        });
        router.service(DRAResourceHealth, {
          nodeWatchResources: (_request, { signal }) => this.#watchHealth(signal),
        });
      }),
    );
    this.#cleanup.use(
      await UnixGrpcServer.listen(
        join(kubeletDirectory, "plugins_registry", `${domain}-reg.sock`),
        (router) => {
          router.service(Registration, {
            getInfo: () => ({
              type: "DRAPlugin",
              name: domain,
              endpoint,
              supportedVersions: ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"],
            }),
            notifyRegistrationStatus: ({ pluginRegistered, error }) => {
              if (pluginRegistered) {
                log.info("the kubelet has registered the plugin");
                this.#registered.resolve();
              } else log.error({ error }, "the kubelet does not register the plugin");
              return {};
            },
          });
        },
      ),
    );
  }

  #writeCdi(): void {
    const { cdiDirectory, names, library } = this.#options;
    const { fileName, specification } = toCdi(names.domain, library);
    mkdirSync(cdiDirectory, { recursive: true, mode: 0o755 });
    const path = join(cdiDirectory, fileName);
    // Container runtimes read every file that ends in .json.
    writeFileSync(`${path}.draft`, `${JSON.stringify(specification, undefined, 2)}\n`, { mode: 0o644 });
    renameSync(`${path}.draft`, path);
  }

  async #forEach<T>(
    claims: readonly ClaimReference[],
    work: (claim: ClaimReference) => Promise<T>,
  ): Promise<Record<string, T>> {
    return Object.fromEntries(
      await Promise.all(claims.map(async (claim) => [claim.uid, await work(claim)] as const)),
    );
  }

  /** The pool is asked for users' own claims only at this point, so its answer is worth a short wait. */
  async #whenGranted(namespace: string, name: string): Promise<ResourceV1ResourceClaim> {
    const { cluster, names, grantMs = 10_000 } = this.#options;
    const { signal } = this.#stop;
    const deadline = performance.now() + grantMs;
    for (;;) {
      const claim = await cluster.resource.readNamespacedResourceClaim({ namespace, name });
      const isOver = performance.now() > deadline || signal.aborted;
      if (whyNotGranted(names, claim) === undefined || isOver) return claim;
      await delay(askAgainMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #prepare({ namespace, name, uid }: ClaimReference): Promise<Prepared> {
    const { names, log } = this.#options;
    const failed = (error: string): Prepared => {
      log.warn({ claim: `${namespace}/${name}`, error }, "a claim is not prepared");
      return { devices: [], error };
    };
    let claim: ResourceV1ResourceClaim;
    try {
      claim = await this.#whenGranted(namespace, name);
    } catch (error) {
      return failed(`the ResourceClaim ${namespace}/${name} cannot be read: ${describeFailure(error)}`);
    }
    if (claim.metadata?.uid !== uid) {
      return failed(`the ResourceClaim ${namespace}/${name} is another one by now: its UID is not ${uid}`);
    }
    const waits = whyNotGranted(names, claim);
    if (waits !== undefined)
      return failed(`the pool has not granted the ResourceClaim ${namespace}/${name}: ${waits}`);
    const results = allocatedOf(names.domain, claim);
    const requests = results.map(requestOf);
    return {
      error: "",
      devices: results.map(({ pool, device, shareID }, index) => ({
        requestNames: requests.slice(index, index + 1),
        poolName: pool,
        deviceName: device,
        // Once per request: a container that names one of several gets only what belongs to that one.
        cdiDeviceIds: requests.indexOf(requests[index] ?? "") === index ? [this.#deviceId] : [],
        ...(shareID === undefined ? {} : { shareId: shareID }),
      })),
    };
  }

  #noteDevices(): void {
    const there = new Set<string>();
    for (const { spec } of this.#slices.objects.values()) {
      for (const { name } of spec.devices ?? []) {
        const key = `${spec.pool.name}/${name}`;
        there.add(key);
        if (!this.#devices.has(key))
          this.#devices.set(key, { pool: spec.pool.name, device: name, isThere: true });
      }
    }
    for (const [key, device] of this.#devices) device.isThere = there.has(key);
    this.#wakeWatchers.resolve();
    this.#wakeWatchers = Promise.withResolvers();
  }

  async *#watchHealth(signal: AbortSignal) {
    await this.#slices.synced;
    while (!signal.aborted && !this.#stop.signal.aborted) {
      const wake = this.#wakeWatchers.promise;
      const now = BigInt(Math.floor(Date.now() / 1000));
      yield {
        devices: [...this.#devices.values()].map(({ pool, device, isThere }) => ({
          device: { poolName: pool, deviceName: device },
          health: isThere ? HealthStatus.HEALTHY : HealthStatus.UNHEALTHY,
          lastUpdatedTime: now,
          message: isThere ? "" : "the pool has no such device, or it is unhealthy",
        })),
      };
      const { promise: pause, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, healthPeriodMs);
      signal.addEventListener("abort", () => resolve(), { once: true });
      await Promise.race([pause, wake]);
      clearTimeout(timer);
    }
  }
}

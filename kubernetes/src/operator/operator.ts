// SPDX-License-Identifier: Apache-2.0

// The operator: every replica answers the webhooks; the leader reconciles pods and claims.

import { setTimeout as delay } from "node:timers/promises";
import type {
  ResourceV1ResourceClaim,
  V1DeviceClass,
  V1Namespace,
  V1Node,
  V1Pod,
} from "@kubernetes/client-node";
import { errorCodeOf } from "@millpond/api";
import type { Connection } from "@millpond/cli";
import type { Logger } from "pino";
import { type Allocation, chooseAllocation } from "../allocation.ts";
import { type Cluster, hasRight, readVersion, unlessStatus } from "../cluster/cluster.ts";
import { LeaderElection } from "../cluster/leader-election.ts";
import { Reflector } from "../cluster/reflector.ts";
import { WorkQueue } from "../cluster/work-queue.ts";
import { SlicePublisher } from "../inventory/resource-slices.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import { podOfClaim } from "../request/pod-claims.ts";
import { isClassOf, limitsOfClasses, resourceClaimOfClaim } from "../request/user-claims.ts";
import { findUserClaims } from "../webhook/mutate-user-claims.ts";
import type { AdmissionPolicy } from "../webhook/admission.ts";
import { register, type RegistrationOptions } from "../webhook/registration.ts";
import { WebhookServer } from "../webhook/server.ts";
import { CertificateStore } from "../webhook/serving-certificate.ts";
import { BookKeeper, compareBooks } from "./books.ts";
import { ClaimView } from "./claim-view.ts";
import { findHost, followCordons } from "./cluster-nodes.ts";
import { DeviceClaims } from "./claims/device-claims.ts";
import { Followers } from "./followers.ts";
import { readJobGang } from "./gangs/job-size.ts";
import { keepLeases, type LeaseKeeperOptions, renewLeases } from "./claims/lease-keeper.ts";
import { formatMetrics } from "./metrics.ts";
import { PodReconciler } from "./pod-reconciler.ts";
import { PodWriter } from "./pod-writer.ts";
import { PoolFacts } from "./pool-facts.ts";
import { Tenancies } from "./tenancies.ts";
import { UserClaims } from "./claims/user-claims.ts";

export interface OperatorOptions {
  readonly cluster: Cluster;
  /** A connection with the rights of an administrator of the pool. */
  readonly pool: Connection;
  readonly names: ResourceNames;
  /** Namespace of its own objects. */
  readonly namespace: string;
  /** As in `LeaderElection`. */
  readonly identity: string;
  /** User name of its service account. */
  readonly user: string;
  /** How pods get their vGPUs; `auto`: by ResourceClaims if the API server supports them. */
  readonly allocation: Allocation | "auto";
  /** Address and authority by which programs reach the controller. */
  readonly programs: { readonly controller: string; readonly ca: string };
  /** Address at which API servers reach the webhooks. */
  readonly webhook: {
    readonly target: RegistrationOptions["target"];
    readonly host: string;
    readonly port: number;
    /** Name of both webhook configurations, the Secret of the certificate and the Lease. */
    readonly objects: string;
    readonly serviceNames: readonly string[];
  };
  readonly log: Logger;
  /** For tests: as in `LeaderElection`. Default 15. */
  readonly leaseSeconds?: number;
  /** For tests: as in `keepLeases`. */
  readonly silence?: Pick<LeaseKeeperOptions, "patienceMs" | "periodMs">;
}

/** What does not change while an operator runs. */
interface Abilities {
  /** The UID of the namespace `kube-system`. */
  readonly clusterId: string;
  readonly allocation: Allocation;
  readonly isGated: boolean;
  readonly hasMatchConditions: boolean;
}

/** Interval after which the certificate and both configurations of webhooks are read again. */
const certificateCheckMs = 15_000;
const trustedAfterMs = 5000;
const lookAgainMs = 15_000;
const compareMs = 5000;

export class Operator implements AsyncDisposable {
  readonly #options: OperatorOptions;
  readonly #abilities: Abilities;
  readonly #facts: PoolFacts;
  readonly #stop = new AbortController();
  readonly #cleanup = new AsyncDisposableStack();
  readonly #tasks: Promise<void>[] = [];
  readonly #election: LeaderElection;
  readonly #tenancies: Tenancies;
  #changedClasses = Promise.withResolvers<void>();
  #namespaces: Reflector<V1Namespace> | undefined;
  /** Nodes of the cluster, while this replica leads. */
  #nodes: Reflector<V1Node> | undefined;
  #webhook: WebhookServer | undefined;
  #pods = 0;
  #queued = 0;
  #reconciler: PodReconciler | undefined;
  #books: BookKeeper | undefined;

  private constructor(options: OperatorOptions, abilities: Abilities) {
    this.#options = options;
    this.#abilities = abilities;
    this.#facts = new PoolFacts(options.pool, options.log);
    const { cluster, names, namespace, identity, log, leaseSeconds } = options;
    this.#tenancies = new Tenancies({
      names,
      known: () => this.#namespaces?.objects.values() ?? [],
      read: (name) => unlessStatus(cluster.core.readNamespace({ name }), 404),
    });
    this.#election = new LeaderElection({
      cluster,
      namespace,
      name: options.webhook.objects,
      identity,
      log,
      ...(leaseSeconds === undefined ? {} : { leaseSeconds, retryMs: (leaseSeconds * 1000) / 8 }),
    });
  }

  /** Resolves when the webhooks answer and are registered. */
  static async start(options: OperatorOptions): Promise<Operator> {
    const version = await readVersion(options.cluster);
    const isAtLeast = (least: number): boolean => version.major > 1 || version.minor >= least;
    const allocation = await chooseAllocation(options.allocation, options.cluster, options.names);
    const system = await options.cluster.core.readNamespace({ name: "kube-system" });
    const operator = new Operator(options, {
      clusterId: system.metadata?.uid ?? "",
      allocation,
      isGated: isAtLeast(27),
      hasMatchConditions: isAtLeast(28),
    });
    try {
      await operator.#begin();
    } catch (error) {
      await operator[Symbol.asyncDispose]();
      throw error;
    }
    return operator;
  }

  get allocation(): Allocation {
    return this.#abilities.allocation;
  }

  get webhookPort(): number {
    return this.#webhook?.port ?? 0;
  }

  /** The number of reviews that this replica has answered. */
  get reviews(): number {
    return this.#webhook?.reviews ?? 0;
  }

  get leads(): boolean {
    return this.#election.leads;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
    await this.#cleanup.disposeAsync();
  }

  async #begin(): Promise<void> {
    const { cluster, names, namespace, webhook, log, user, pool, silence = {} } = this.#options;
    const { signal } = this.#stop;
    const namespaces = this.#reflect<V1Namespace>(
      "/api/v1/namespaces",
      (page) => cluster.core.listNamespace(page),
      {
        onChange: () => undefined,
      },
    );
    this.#namespaces = namespaces;
    const classes =
      this.#abilities.allocation === "dra"
        ? this.#reflect<V1DeviceClass>(
            "/apis/resource.k8s.io/v1/deviceclasses",
            (page) => cluster.resource.listDeviceClass(page),
            { onChange: () => this.#changedClasses.resolve() },
          )
        : undefined;
    const classesOfPool = () =>
      [...(classes?.objects.values() ?? [])].filter((each) => isClassOf(names.domain, each));
    const store = new CertificateStore({
      cluster,
      namespace,
      name: webhook.objects,
      serviceNames: webhook.serviceNames,
    });
    let files = await store.read();
    const policy: AdmissionPolicy = {
      names,
      ...this.#abilities,
      systemNamespace: namespace,
      operatorUser: user,
      limits: () => this.#facts.limits,
      tenancyOf: (name) => this.#tenancies.find(name),
      isClassOfPool: (name) =>
        name === names.domain || classesOfPool().some(({ metadata }) => metadata?.name === name),
      canMakePods: () => hasRight(cluster, { resource: "pods", verb: "create" }),
      userClaimsOf: (place, pod) =>
        findUserClaims(cluster, names, classes?.objects.values() ?? [], place, pod),
    };
    const server = await WebhookServer.start({
      policy,
      certificate: files.server,
      host: webhook.host,
      port: webhook.port,
      isReady: () => namespaces.isSynced && !signal.aborted,
      metrics: () => this.#metrics(),
      log,
    });
    this.#webhook = server;
    this.#cleanup.defer(() => server.close());
    const target =
      "url" in webhook.target && webhook.port === 0
        ? { url: `https://${webhook.host}:${server.port}` }
        : webhook.target;
    const registration = (bundle: string): RegistrationOptions => ({
      names,
      name: webhook.objects,
      target,
      bundle,
      namespace,
      operatorUser: user,
      hasResourceClaims: this.#abilities.allocation === "dra",
      hasMatchConditions: this.#abilities.hasMatchConditions,
      classLimits: limitsOfClasses(names, classesOfPool()),
      classes: classesOfPool().flatMap(({ metadata }) => metadata?.name ?? []),
    });
    await Promise.all([namespaces.synced, classes?.synced]);
    await register(cluster, registration(files.bundle));
    this.#tasks.push(
      this.#keepRegistered(async () => {
        const { bundle } = files;
        files = await store.read();
        await register(cluster, registration(files.bundle));
        // API servers trust another authority a moment after it is registered.
        if (files.bundle !== bundle)
          await delay(trustedAfterMs, undefined, { signal }).catch(() => undefined);
        server.use(files.server);
      }),
      this.#readPool(),
      this.#election.run(signal, (stop) => this.#lead(stop)),
      keepLeases(
        {
          pool,
          cluster: this.#abilities.clusterId,
          silentMs: () => this.#election.silentMs,
          log,
          ...silence,
        },
        signal,
      ),
    );
  }

  /**
   * Reads the pool, on all replicas; the leader also publishes it, and cordons the machines that accept no new work.
   */
  async #readPool(): Promise<void> {
    const { cluster, names, pool, log } = this.#options;
    const publisher = new SlicePublisher({ cluster, names, log });
    await this.#facts.run(this.#stop.signal, async (nodes) => {
      if (!this.#election.leads) return;
      if (this.#abilities.allocation === "dra") await publisher.publish(nodes);
      if (this.#nodes?.isSynced) await followCordons(pool, nodes, [...this.#nodes.objects.values()], log);
    });
  }

  /** Reconciles pods and claims for as long as this instance is the leader. */
  async #lead(signal: AbortSignal): Promise<void> {
    const { cluster, names, log, pool, programs } = this.#options;
    const keys = keysOf(names);
    await using cleanup = new AsyncDisposableStack();
    const { clusterId } = this.#abilities;
    const writer = new PodWriter(cluster, keys, log);
    const nodes = this.#reflect<V1Node>("/api/v1/nodes", (page) => cluster.core.listNode(page), {
      onChange: () => undefined,
      cleanup,
    });
    this.#nodes = nodes;
    cleanup.defer(() => (this.#nodes = undefined));
    const queue = new WorkQueue({
      work: async (key) =>
        key.startsWith(userClaimKey)
          ? await userClaims?.reconcile(key.slice(userClaimKey.length))
          : await reconciler.reconcile(key),
      log,
    });
    cleanup.defer(() => queue.stop());
    const claims = new ClaimView({
      pool,
      cluster: clusterId,
      onChange: (name) => queue.add(keyOfClaim(name)),
      log,
    });
    const pods = this.#reflect<V1Pod>("/api/v1/pods", (page) => cluster.core.listPodForAllNamespaces(page), {
      labelSelector: keys.managed,
      onChange: (pod) => {
        if (claims.isCompared) queue.add(pod.metadata?.uid ?? "");
      },
      cleanup,
    });
    const resourceClaimsByName = new Map<string, ResourceV1ResourceClaim>();
    const resourceClaims =
      this.#abilities.allocation === "dra"
        ? this.#reflect<ResourceV1ResourceClaim>(
            "/apis/resource.k8s.io/v1/resourceclaims",
            (page) => cluster.resource.listResourceClaimForAllNamespaces(page),
            {
              onChange: (object, isGone) => {
                const { metadata } = object;
                const name = `${metadata?.namespace}/${metadata?.name}`;
                const known = resourceClaimsByName.get(name);
                if (!isGone) resourceClaimsByName.set(name, object);
                else if (known?.metadata?.uid === metadata?.uid) resourceClaimsByName.delete(name);
                if (!claims.isCompared) return;
                queue.add(`${userClaimKey}${metadata?.uid}`);
                // Its pod may still need it.
                if (isGone) for (const { uid } of metadata?.ownerReferences ?? []) queue.add(uid);
              },
              cleanup,
            },
          )
        : undefined;
    const userClaims =
      resourceClaims === undefined
        ? undefined
        : new UserClaims({
            cluster,
            names,
            clusterId,
            claims,
            resourceClaims: resourceClaims.objects,
            pods: pods.objects,
            nodes: () => this.#facts.nodes,
            tenancyOf: (name) => this.#tenancies.read(name),
            ensureTenant: (tenant) => this.#ensureTenant(tenant),
            onChange: (uid) => queue.add(uid),
            log,
          });
    const reconciler = new PodReconciler({
      names,
      userClaims,
      cluster: clusterId,
      claims,
      writer,
      deviceClaims: this.#abilities.allocation === "dra" ? new DeviceClaims(cluster, names) : undefined,
      findPod: (uid) => pods.objects.get(uid),
      findResourceClaim: (namespace, name) => resourceClaimsByName.get(`${namespace}/${name}`),
      isGone: async (namespace, name, uid) => {
        const there =
          name === undefined
            ? (await cluster.core.listNamespacedPod({ namespace, labelSelector: keys.managed })).items
            : [await unlessStatus(cluster.core.readNamespacedPod({ namespace, name }), 404)];
        return !there.some((pod) => pod?.metadata?.uid === uid);
      },
      tenancyOf: (name) => this.#tenancies.read(name),
      hostOf: (name) => {
        const poolNode = this.#facts.nodes?.find((node) => node.name === name);
        return poolNode && findHost(poolNode, nodes.objects.values());
      },
      isGated: this.#abilities.isGated,
      makeToken: async (claim) => (await pool.claims.createClaimToken({ name: claim })).secret,
      jobGangOf: (pod) => readJobGang(cluster, names, pod),
      ensureTenant: (tenant) => this.#ensureTenant(tenant),
      endpoint: programs,
      followers: new Followers({ cluster, names, writer }),
      log,
    });
    this.#reconciler = reconciler;
    await Promise.race([Promise.all([pods.synced, nodes.synced, resourceClaims?.synced]), aborted(signal)]);
    const viewing = claims.run(signal);
    const renewing = renewLeases(claims, signal, log);
    const counting = this.#count(signal, pods, resourceClaims, queue, claims);
    await Promise.all([viewing, renewing, counting]);
  }

  /** Queues every pod and every claim once all are known, and then periodically, to repair missed events. */
  async #count(
    signal: AbortSignal,
    pods: Reflector<V1Pod>,
    resourceClaims: Reflector<ResourceV1ResourceClaim> | undefined,
    queue: WorkQueue,
    claims: ClaimView,
  ): Promise<void> {
    const books = new BookKeeper(this.#options.log);
    this.#books = books;
    let comparedAtMs = Number.NEGATIVE_INFINITY;
    let lookedAtMs = Number.NEGATIVE_INFINITY;
    while (!signal.aborted) {
      const { nodes } = this.#facts;
      if (claims.isCompared && nodes !== undefined && performance.now() - comparedAtMs > compareMs) {
        comparedAtMs = performance.now();
        const { names } = this.#options;
        const both = {
          names,
          claims: claims.claims,
          pods: pods.objects,
          resourceClaims: resourceClaims?.objects,
          nodes,
        };
        books.take(compareBooks(both), comparedAtMs);
      }
      if (claims.isCompared && performance.now() - lookedAtMs > lookAgainMs) {
        lookedAtMs = performance.now();
        for (const uid of pods.objects.keys()) queue.add(uid);
        for (const uid of resourceClaims?.objects.keys() ?? []) queue.add(`${userClaimKey}${uid}`);
        for (const name of claims.claims.keys()) queue.add(keyOfClaim(name));
      }
      this.#pods = pods.objects.size;
      this.#queued = queue.length;
      await delay(100, undefined, { signal }).catch(() => undefined);
    }
    this.#books = undefined;
  }

  /** A namespace without a tenant becomes a tenant of its own, without limits; administrators set them. */
  async #ensureTenant(tenant: string): Promise<void> {
    try {
      await this.#options.pool.queues.putTenant({ tenant: { name: tenant }, createOnly: true });
    } catch (error) {
      if (errorCodeOf(error) !== "MILLPOND_E_ALREADY_EXISTS") throw error;
    }
  }

  #reflect<T extends object>(
    path: string,
    list: ConstructorParameters<typeof Reflector<T>>[0]["list"],
    options: {
      readonly labelSelector?: string;
      readonly onChange: (object: T, isGone: boolean) => void;
      readonly cleanup?: AsyncDisposableStack;
    },
  ): Reflector<T> {
    const { cluster, log } = this.#options;
    const { cleanup = this.#cleanup, ...rest } = options;
    const reflector = new Reflector<T>({ cluster, path, list, log, ...rest }).start();
    cleanup.defer(() => reflector.stop());
    return reflector;
  }

  /** Looks after certificates and webhooks periodically, and when a class of devices has changed. */
  async #keepRegistered(work: () => Promise<void>): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const pause = delay(certificateCheckMs, undefined, { signal }).catch(() => undefined);
      await Promise.race([pause, this.#changedClasses.promise]);
      this.#changedClasses = Promise.withResolvers();
      if (signal.aborted) return;
      try {
        await work();
      } catch (error) {
        this.#options.log.warn({ err: error }, "failed and will be retried");
      }
    }
  }

  #metrics(): string {
    return formatMetrics({
      leads: this.#election.leads,
      reviews: this.reviews,
      pods: this.#pods,
      bookDifferences: this.#reconciler?.bookDifferences ?? 0,
      queueLength: this.#queued,
      books: this.#books,
    });
  }
}

/** Prefix of the queue's keys that are ResourceClaims; all others are pods. */
const userClaimKey = "resourceclaim ";

function keyOfClaim(name: string): string {
  const resourceClaim = resourceClaimOfClaim(name);
  return resourceClaim === undefined ? (podOfClaim(name)?.uid ?? "") : `${userClaimKey}${resourceClaim}`;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

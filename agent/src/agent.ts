// SPDX-License-Identifier: Apache-2.0

import { createHash, randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import type { Logger } from "pino";
import {
  AgentService,
  checkLabels,
  type GetNodeStatusResponseSchema,
  type SyncRequestSchema,
  type SyncResponse,
} from "@millpond/api";
import {
  explainTlsFailure,
  makeOwnCertificate,
  makeFailoverTransport,
  makePromptAgent,
  processMetrics,
  renderMetrics,
} from "@millpond/platform";
import { Activity } from "./run-directory/activity.ts";
import { Admission } from "./sessions/admission.ts";
import { DeviceHealth } from "./devices/device-health.ts";
import { costsOf, type DiscoveredDevice, discoverDevices } from "./devices/devices.ts";
import type { DriverCosts } from "./workers/driver-probe.ts";
import { agentMetrics } from "./metrics.ts";
import { type NodeServer, serveNode } from "./sessions/node-service.ts";
import { type AgentOptions, type ResolvedAgentOptions, resolveAgentOptions } from "./options.ts";
import { bootId } from "./process/process-identity.ts";
import { reportDevice, reportEndedSession, reportSession } from "./reports/report.ts";
import { type EndedSession, RunDirectory, type SessionRecord } from "./run-directory/run-directory.ts";
import { SelfDescription } from "./reports/self-description.ts";
import { SessionPlaces } from "./sessions/session-places.ts";
import { SyncLoop } from "./reports/sync-loop.ts";
import { agentVersion } from "./version.ts";
import { ClaimCgroups } from "./workers/claim-cgroups.ts";
import { chooseWorkerUsers, type WorkerContainment } from "./workers/worker-containment.ts";
import { makeSoftgpuState } from "./workers/softgpu-state.ts";
import { roomForWorkers } from "./workers/room-for-workers.ts";
import { type Drain, WorkerPool } from "./workers/worker-pool.ts";

/** A running agent. Disposing of it stops it and leaves its workers running. */
export interface Agent extends AsyncDisposable {
  readonly name: string;
  /** Base URL of its NodeService. */
  readonly url: string;
  readonly devices: readonly DiscoveredDevice[];
  readonly log: Logger;
  /**
   * Replaces the labels of the node.
   *
   * @throws MILLPOND_E_INVALID
   */
  reload(change: { readonly labels: Readonly<Record<string, string>> }): void;
  /**
   * Stops the agent. `drain` chooses the workers that end with it: `none` (default) leaves all of them to the next
   * agent on the run directory (idle ones end by themselves when none comes), `idle` ends those without a session,
   * `all` ends sessions too. Idempotent; a second call waits for the first.
   */
  stop(options?: { readonly drain?: Drain }): Promise<void>;
}

/** The controller answers the last report once it has recorded that the node leaves. */
const lastReportMs = 500;
const forgetIntervalMs = 3_600_000;

/**
 * Starts the agent of a node: finds the devices, takes over the workers of an earlier agent, serves NodeService and
 * keeps in contact with the controller. Resolves once it serves; the controller may be away.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_DRIVER, MILLPOND_E_ADDRESS_IN_USE, MILLPOND_E_STATE_BROKEN, and
 *   MILLPOND_E_STATE_LOCKED when another agent uses the run directory
 */
export async function startAgent(options: AgentOptions): Promise<Agent> {
  const resolved = resolveAgentOptions(options);
  const run = RunDirectory.open(resolved.run);
  try {
    const containment = containWorkers(resolved);
    makeSoftgpuState(process.env, containment.user);
    const cgroups = groupClaims(resolved);
    if (containment.user !== undefined) run.openToWorkers();
    const devices = await discoverDevices({ ...resolved, containment });
    return await RunningAgent.start(resolved, run, devices, containment, cgroups);
  } catch (error) {
    run[Symbol.dispose]();
    throw error;
  }
}

/** @throws MILLPOND_E_INVALID when workers cannot run as the requested user. */
function containWorkers(options: ResolvedAgentOptions): WorkerContainment {
  const { gap, ...users } = chooseWorkerUsers(options, {
    runDirectory: options.run,
    isRoot: process.getuid?.() === 0,
  });
  if (gap !== undefined) options.log.warn(`workers are not contained in full: ${gap}`);
  if (options.noContainment)
    options.log.warn("workers are not contained at all: tenants share the agent's rights");
  return {
    ...users,
    gaps: gap === undefined ? [] : [gap],
    isOff: options.noContainment,
    trustsPageableAccess: options.trustPageableAccess,
  };
}

/** Control groups for claims; only an agent that contains its workers has them. */
function groupClaims({ name, run, noContainment, log }: ResolvedAgentOptions): ClaimCgroups {
  if (noContainment) return ClaimCgroups.none();
  const agent = createHash("sha256").update(run).digest("hex").slice(0, 8);
  const cgroups = ClaimCgroups.open({ name: `${name}-${agent}` });
  for (const gap of cgroups.gaps) log.warn(`workers are not contained in full: ${gap}`);
  return cgroups;
}

class RunningAgent implements Agent {
  readonly name: string;
  readonly devices: readonly DiscoveredDevice[];
  readonly #options: ResolvedAgentOptions;
  readonly #runDirectory: RunDirectory;
  readonly #admission: Admission;
  readonly #activity: Activity;
  readonly #health: DeviceHealth;
  readonly #cgroups: ClaimCgroups;
  readonly #containment: WorkerContainment;
  readonly #pool: WorkerPool;
  readonly #places = new SessionPlaces(() => this.#pool.sessions);
  readonly #sync: SyncLoop;
  readonly #run = randomUUID();
  readonly #startedAt = new Date();
  readonly #description = new SelfDescription();
  #server: NodeServer | undefined;
  #forgetTimer: NodeJS.Timeout | undefined;
  #labels: ResolvedAgentOptions["labels"];
  #knownRevision = 0n;
  #controller = "";
  #stopping: Promise<void> | undefined;

  private constructor(
    options: ResolvedAgentOptions,
    run: RunDirectory,
    devices: readonly DiscoveredDevice[],
    containment: WorkerContainment,
    cgroups: ClaimCgroups,
  ) {
    this.#cgroups = cgroups;
    this.#containment = containment;
    this.#options = options;
    this.#runDirectory = run;
    this.name = options.name;
    this.#labels = options.labels;
    this.devices = devices;
    this.#admission = new Admission({ node: options.name, run });
    this.#activity = new Activity(run, options.log);
    this.#health = new DeviceHealth({
      worker: options.worker,
      devices,
      containment,
      silenceMs: options.driverSilenceMs,
      restartMs: options.restartFirstMs,
      log: options.log,
      onChange: () => {
        this.#pool.refill();
        this.#sync.news();
      },
    });
    this.#pool = new WorkerPool({
      run,
      worker: options.worker,
      devices: devices.map((device) => ({
        uuid: device.description.uuid,
        driver: device.driver,
        costs: this.#costsOf(device),
      })),
      roomForWorkers: (uuid, sessions) => this.#roomForWorkers(uuid, sessions),
      isIll: (uuid) => this.#health.illnessOf(uuid) !== undefined,
      warm: options.warm,
      tcpHost: options.listenHost,
      tcpPorts: options.workerPorts,
      orphanSeconds: options.orphanSeconds,
      startTimeoutMs: options.startTimeoutMs,
      assignTimeoutMs: options.assignTimeoutMs,
      connectWithinSeconds: options.connectWithinSeconds,
      reconnectGraceSeconds: options.reconnectGraceSeconds,
      closeTimeoutMs: options.closeTimeoutMs,
      restartFirstMs: options.restartFirstMs,
      restartCeilingMs: options.restartCeilingMs,
      containment,
      cgroups,
      claimHostBytes: options.claimHostBytes,
      log: options.log,
      onChange: () => {
        this.#places.changed();
        this.#enforceSizes();
        this.#sync.news();
      },
      onCalls: ({ epoch }, meanwhile) => this.#activity.add(epoch, meanwhile),
    });
    const authorize =
      (address: string): Interceptor =>
      (next) =>
      async (request) => {
        request.header.set("authorization", `Bearer ${options.token}`);
        try {
          return await next(request);
        } catch (error) {
          throw (await explainTlsFailure(error, address)) ?? error;
        }
      };
    const client = createClient(
      AgentService,
      makeFailoverTransport({
        addresses: options.controllers,
        // A report describes the present state, so the controller may receive it twice.
        isRepeatable: () => true,
        makeTransport: (address) =>
          createConnectTransport({
            baseUrl: address,
            httpVersion: "1.1",
            interceptors: [authorize(address)],
            nodeOptions: { agent: makePromptAgent(address, { ca: options.ca }) },
          }),
      }),
    );
    this.#sync = new SyncLoop({
      call: async (sequence, signal, { isLast }) => {
        const ended = run.endedSessions();
        const call = async () => {
          const report = { ...this.#report(BigInt(sequence), ended), leaving: isLast };
          const answer = await client.sync(report, { signal });
          return this.#description.learn(report, answer) ? undefined : answer;
        };
        const answer = (await call()) ?? (await call());
        if (answer === undefined)
          throw new Error("the controller asked again for the description that it has just received");
        // The answer to a call that was overtaken is not needed: the call that overtook it listed them too.
        run.forgetEndedSessions(ended);
        return answer;
      },
      apply: (answer) => this.#enforce(answer),
      onRemoved: (reason) => {
        for (const worker of this.#pool.sessions) this.#pool.close(worker, reason);
      },
      // With several controllers, another takes over within seconds.
      ...(options.controllers.length > 1
        ? { callTimeoutMs: 5000, retryCeilingMs: 500 }
        : { callTimeoutMs: 15_000, retryCeilingMs: 2000 }),
      log: options.log,
    });
  }

  static async start(
    options: ResolvedAgentOptions,
    run: RunDirectory,
    devices: readonly DiscoveredDevice[],
    containment: WorkerContainment,
    cgroups: ClaimCgroups,
  ): Promise<RunningAgent> {
    const agent = new RunningAgent(options, run, devices, containment, cgroups);
    await agent.#start();
    return agent;
  }

  get log(): Logger {
    return this.#options.log;
  }

  reload({ labels }: { readonly labels: Readonly<Record<string, string>> }): void {
    this.#labels = checkLabels(labels);
    this.log.info({ labels: this.#labels }, "reloaded");
    this.#sync.news();
  }

  get url(): string {
    if (this.#server === undefined) throw new Error("the agent does not serve yet");
    return this.#server.url;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  stop(options: { readonly drain?: Drain } = {}): Promise<void> {
    this.#stopping ??= this.#stop(options.drain ?? "none");
    return this.#stopping;
  }

  async #start(): Promise<void> {
    const { log, isEncrypted, advertisedHost } = this.#options;
    const certificate = isEncrypted
      ? makeOwnCertificate([advertisedHost], {
          directory: this.#options.run,
          authority: `Millpond node ${this.name}`,
        })
      : undefined;
    await this.#pool.adopt();
    try {
      this.#server = await serveNode({
        host: this.#options.listenHost,
        port: this.#options.listenPort,
        advertisedHost,
        certificate,
        token: this.#options.token,
        metricsToken: this.#options.metricsToken,
        opener: {
          admission: this.#admission,
          pool: this.#pool,
          places: this.#places,
          devices: this.devices,
          illnessOf: (uuid) => this.#health.illnessOf(uuid),
          tcpHost: advertisedHost,
          isEncrypted,
          log,
        },
        claims: {
          admission: this.#admission,
          sessions: () => this.#pool.sessions,
          devices: this.devices,
          figuresOf: (uuid) => this.#health.figuresOf(uuid),
        },
        status: () => this.#status(),
        metrics: () => this.#metrics(),
        log,
      });
    } catch (error) {
      await this.#pool.stop("none");
      throw error;
    }
    this.#health.start();
    this.#pool.refill();
    this.#sync.start();
    this.#forgetTimer = setInterval(() => this.#admission.forget(nowSeconds()), forgetIntervalMs);
    log.info({ node: this.name, url: this.url, devices: this.devices.length }, "the agent serves");
  }

  async #stop(drain: Drain): Promise<void> {
    clearInterval(this.#forgetTimer);
    this.#health.stop();
    this.#server?.refuse();
    await this.#pool.stop(drain);
    this.#cgroups.close();
    await this.#sync.stop({ lastReportMs });
    await this.#server?.close();
    this.#runDirectory[Symbol.dispose]();
    this.#options.log.info({ node: this.name, drain }, "the agent has stopped");
  }

  #enforce(answer: SyncResponse): void {
    // Epochs of another pool mean nothing in this one.
    if (!this.#runDirectory.isOfPool(answer.controller)) this.#activity.keepOnly(new Set());
    this.#admission.learn(answer, nowSeconds());
    for (const worker of this.#pool.sessions) {
      if (!this.#admission.isGranted(worker.session)) {
        this.#pool.close(worker, `the allocation of claim ${worker.session.claim} was taken away`);
      }
    }
    this.#enforceSizes();
    this.#pool.refill();
    for (const { uuid, fault } of answer.clearedFaults) this.#health.clear(uuid, Number(fault));
    const held = [
      ...answer.allocations.map(({ claim, epoch }) => ({ claim, epoch: Number(epoch) })),
      ...this.#pool.sessions.map(({ session }) => session),
    ];
    this.#activity.keepOnly(new Set(held.map(({ epoch }) => epoch)));
    this.#runDirectory.keepClaimDirectories(held);
    const names = held.map(({ claim, epoch }) => this.#runDirectory.allocationName(claim, epoch));
    this.#cgroups.keepOnly(new Set(names));
    this.#controller = answer.controller;
    this.#knownRevision = answer.revision;
  }

  #costsOf(device: DiscoveredDevice): DriverCosts {
    return costsOf(device, this.#options.sessionOverheadBytes);
  }

  #roomForWorkers(uuid: string, sessions: readonly SessionRecord[]): number {
    const device = this.devices.find(({ description }) => description.uuid === uuid);
    if (device === undefined) return 0;
    const overheadBytes = this.#costsOf(device).contextBytes;
    return roomForWorkers(
      { uuid, memoryBytes: device.description.memoryBytes, overheadBytes },
      this.#admission.allocationsOn(uuid),
      sessions,
    );
  }

  #enforceSizes(): void {
    for (const worker of this.#pool.sessions) {
      const sizes = this.#admission.sizesOf(worker.session);
      if (sizes !== undefined) worker.resize(sizes);
    }
  }

  /** Why a device must not be used; undefined: it may be used. */
  #illnessOf(uuid: string): string | undefined {
    const failure = this.#pool.failureOf(uuid);
    return (
      this.#health.illnessOf(uuid) ??
      (failure === undefined ? undefined : `its workers do not start: ${failure}`)
    );
  }

  #deviceReports() {
    return this.devices.map((device) => {
      const { uuid } = device.description;
      return reportDevice(device, {
        illness: this.#illnessOf(uuid),
        fault: this.#health.faultOf(uuid),
        overheadBytes: this.#costsOf(device).contextBytes,
      });
    });
  }

  #report(sequence: bigint, ended: readonly EndedSession[]): MessageInitShape<typeof SyncRequestSchema> {
    const description = this.#description.say(sequence, {
      agentUrl: this.url,
      agentVersion,
      hostname: hostname(),
      bootId: bootId(),
      labels: { ...this.#labels },
      devices: this.#deviceReports(),
    });
    // Only a controller that remembers the node knows its sessions.
    const isInFull = description.describedBy === undefined;
    return {
      node: this.name,
      run: this.#run,
      sequence,
      ...description,
      sessions: this.#pool.sessions.map((worker) =>
        reportSession(worker, { figuresOf: (uuid) => this.#health.figuresOf(uuid), isInFull }),
      ),
      figures: this.devices.flatMap(({ description: { uuid } }) => {
        const card = this.#health.figuresOf(uuid);
        return card === undefined ? [] : [{ uuid, card }];
      }),
      endedSessions: ended.map(reportEndedSession),
      activity: this.#activity
        .totals()
        .map(({ epoch, activeMs }) => ({ epoch: BigInt(epoch), activeMilliseconds: BigInt(activeMs) })),
      warmWorkers: this.#pool.warmCount,
      knownRevision: this.#knownRevision,
      knownTerm: BigInt(this.#runDirectory.term),
      ticketKeyIds: [...this.#admission.ticketKeyIds],
    };
  }

  #metrics(): string {
    return renderMetrics([
      ...processMetrics(agentVersion),
      ...agentMetrics(this.#pool, this.devices, (uuid) => this.#illnessOf(uuid) === undefined),
      {
        name: "millpond_agent_last_sync_timestamp_seconds",
        value: Math.floor((this.#sync.lastSuccess?.getTime() ?? 0) / 1000),
      },
    ]);
  }

  #status(): MessageInitShape<typeof GetNodeStatusResponseSchema> {
    const problems: string[] = [...this.#containment.gaps, ...this.#cgroups.gaps];
    if (this.#sync.failure !== undefined) {
      problems.push(`Reports to the controller fail: ${this.#sync.failure}`);
    }
    for (const { description } of this.devices) {
      const illness = this.#illnessOf(description.uuid);
      if (illness !== undefined) problems.push(`Device ${description.uuid} is unhealthy: ${illness}`);
    }
    return {
      node: this.name,
      run: this.#run,
      agentVersion,
      hostname: hostname(),
      bootId: bootId(),
      startedAt: BigInt(Math.floor(this.#startedAt.getTime() / 1000)),
      controllerUrl: this.#options.controllers.join(","),
      controller: this.#controller,
      lastSyncAt: BigInt(Math.floor((this.#sync.lastSuccess?.getTime() ?? 0) / 1000)),
      syncError: this.#sync.failure ?? "",
      driverPath: this.#options.drivers.join(","),
      driverVersion: this.devices[0]?.driverVersion ?? "",
      workerPath: this.#options.worker,
      devices: this.#deviceReports(),
      workers: this.#pool.workers.map((worker) => ({
        id: worker.directory.id,
        pid: worker.process.pid,
        state: worker.phase,
        session: worker.session?.session ?? "",
        startedAt: BigInt(worker.startedAt),
      })),
      problems,
    };
  }
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

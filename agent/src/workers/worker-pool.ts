// SPDX-License-Identifier: Apache-2.0

import { randomBytes, randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { ConnectError } from "@connectrpc/connect";
import type { Logger } from "pino";
import { Backoff } from "../process/backoff.ts";
import { errorText } from "../process/error-text.ts";
import {
  findProcessesByArgument,
  identifyProcess,
  isProcessAlive,
  signalProcess,
  userOfProcess,
} from "../process/process-identity.ts";
import {
  readWorkerRecord,
  removeWorkerDirectory,
  type SessionRecord,
  type WorkerDirectory,
} from "../run-directory/run-directory.ts";
import type { DriverCosts } from "./driver-probe.ts";
import { countedHostBytes, limitsOf } from "./claim-cgroups.ts";
import { Worker, type WorkerEnd, WorkerLostError } from "./worker.ts";
import type { OpenOptions, PooledDevice, WorkerPoolOptions } from "./worker-pool-options.ts";
import { makeSoftgpuState, removeSoftgpuState } from "./softgpu-state.ts";
import { isWithin, requirePort } from "./worker-ports.ts";
import { spawnWorker } from "./worker-process.ts";
import { WorkerUsers } from "./worker-users.ts";

const adoptionPatienceMs = 2000;

/** The workers that `stop` ends; the others continue without an agent. */
export type Drain = "none" | "idle" | "all";

interface WarmSlot {
  readonly device: PooledDevice;
  readonly backoff: Backoff;
  timer: NodeJS.Timeout | undefined;
}

/**
 * The workers of a node: keeps some warm, assigns sessions to them, adopts those of an earlier agent, and cleans up
 * after those that have ended.
 */
export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #log: Logger;
  readonly #workers = new Map<string, Worker>();
  readonly #slots: readonly WarmSlot[];
  /** Sessions that are being opened, by the worker that is reserved for each. */
  readonly #reserved = new Map<Worker, SessionRecord>();
  /** Undefined: all workers run as one user. */
  readonly #users: WorkerUsers | undefined;
  readonly #lastFailures = new Map<string, string>();
  #isStopping = false;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
    this.#log = options.log;
    const { users } = options.containment;
    this.#users =
      users === undefined ? undefined : new WorkerUsers(users, randomInt(users.last - users.first));
    this.#slots = options.devices.map((device) => ({
      device,
      backoff: new Backoff({ firstMs: options.restartFirstMs, ceilingMs: options.restartCeilingMs }),
      timer: undefined,
    }));
  }

  get workers(): readonly Worker[] {
    return [...this.#workers.values()];
  }

  /** Workers with a session whose process still runs. */
  get sessions(): readonly (Worker & { readonly session: SessionRecord })[] {
    return this.workers.filter(
      (worker): worker is Worker & { readonly session: SessionRecord } => worker.session !== null,
    );
  }

  get warmCount(): number {
    return this.workers.filter((worker) => worker.phase === "warm" && !this.#reserved.has(worker)).length;
  }

  /** Why workers of a device do not start; undefined: the last start succeeded, or a worker is warm. */
  failureOf(uuid: string): string | undefined {
    const isWarm = this.workers.some(({ warmDevice, phase }) => warmDevice === uuid && phase === "warm");
    return isWarm ? undefined : this.#lastFailures.get(uuid);
  }

  /**
   * Adopts the workers of an earlier agent and removes the files of dead ones. Resolves when every live worker is
   * known, so that later reports are complete.
   */
  async adopt(): Promise<void> {
    await Promise.all(
      this.#options.run.workerDirectories().map((directory) => this.#adoptDirectory(directory)),
    );
  }

  /** Starts workers up to the wanted number of warm ones, and ends those beyond it. */
  refill(): void {
    if (this.#isStopping) return;
    for (const slot of this.#slots) {
      this.#endSurplus(slot.device);
      if (slot.timer !== undefined) continue;
      for (
        let missing = this.#wanted(slot.device) - this.#idle(slot.device).length;
        missing > 0;
        missing -= 1
      ) {
        if (!this.#spawnWarm(slot)) break;
      }
    }
  }

  /**
   * Gives a session to a worker that is warm on its first device, to one that is starting, or to a new one, in this
   * order. A claim that has a session already gets a new worker: if claims have users of their own, warm workers run as
   * other users; and if contexts are charged, a warm worker has a context for which the claim may have no memory.
   * Rejects when the worker refuses, dies or does not answer, or when `assertAllowed` throws; no worker has the session
   * then.
   */
  async open(session: SessionRecord, ticket: string, options: OpenOptions): Promise<Worker> {
    const device = this.#slots.find((slot) => slot.device.uuid === session.devices[0]?.uuid)?.device;
    if (device === undefined) throw new Error("the session's first device is not on this node");
    try {
      return await this.#openOn(this.#pick(device, session), session, ticket, options);
    } catch (error) {
      // A worker that was kept warm may have died unnoticed. A second failure, of a new worker, is final.
      if (!(error instanceof WorkerLostError) || this.#isStopping) throw error;
      return await this.#openOn(this.#spawnFor(device, session), session, ticket, options);
    }
  }

  /** Ends a session; its worker is killed when it does not end in time. */
  close(worker: Worker, reason: string): void {
    if (worker.phase === "closing" || worker.phase === "ended") return;
    void worker.end(reason, { graceMs: this.#options.closeTimeoutMs });
  }

  /** Stops keeping workers. Resolves when the workers that `drain` names have ended and are cleaned up. */
  async stop(drain: Drain): Promise<void> {
    this.#isStopping = true;
    for (const slot of this.#slots) clearTimeout(slot.timer);
    const ending = this.workers.filter((worker) => {
      const isIdle = worker.session === null;
      return drain === "all" || (drain === "idle" && isIdle);
    });
    await Promise.all(
      ending.map((worker) => worker.end("the agent is stopping", { graceMs: this.#options.closeTimeoutMs })),
    );
    for (const worker of this.workers) worker.letGo();
  }

  #pick(device: PooledDevice, session: SessionRecord): Worker {
    const served = this.#servedBy(session);
    const isCharged = served !== undefined && device.costs.contextBytes > 0;
    const idle = this.#idle(device).filter(
      (worker) => !isCharged && (served?.user === undefined || worker.user === served.user),
    );
    return idle.find((worker) => worker.phase === "warm") ?? idle[0] ?? this.#spawnFor(device, session);
  }

  /** A worker that serves an allocation; undefined: there is none. */
  #servedBy({ claim, epoch }: SessionRecord): Worker | undefined {
    return this.workers.find((each) => {
      const session = each.session ?? this.#reserved.get(each);
      const isServing = each.phase !== "closing" && each.phase !== "ended";
      return isServing && session?.claim === claim && session.epoch === epoch;
    });
  }

  /** Starts a worker for a session; a further one of its claim makes no context before the claim is charged for it. */
  #spawnFor(device: PooledDevice, session: SessionRecord): Worker {
    const served = this.#servedBy(session);
    const isCharged = served !== undefined && device.costs.contextBytes > 0;
    return this.#spawn(device, served?.user, !isCharged);
  }

  /** Whether the worker runs as the user of a claim that other workers serve. */
  #isOfClaim(worker: Worker): boolean {
    const others = this.workers.filter((each) => each !== worker && each.user === worker.user);
    return this.#users !== undefined && others.length > 0;
  }

  async #openOn(
    worker: Worker,
    session: SessionRecord,
    ticket: string,
    options: OpenOptions,
  ): Promise<Worker> {
    this.#reserved.set(worker, session);
    this.refill();
    try {
      await worker.ready;
      options.assertAllowed();
      const connectBy = Math.floor(Date.now() / 1000) + this.#options.connectWithinSeconds;
      const { devices, revision } = options.sizes();
      this.#placeInGroup(worker, session);
      await worker.assign(
        { ...session, devices },
        {
          ticket,
          expires: Math.min(options.expires, connectBy),
          linkSecret: options.linkSecret,
          parkAfterMs: options.parkAfterMs,
          overheadBytes: devices.map(({ uuid }) => this.#costsOf(uuid).contextBytes),
          printsBytes: devices.map(({ uuid }) => this.#costsOf(uuid).printsBytes),
          allocatesBytes: devices.map(({ uuid }) => this.#costsOf(uuid).allocatesBytes),
          claimHostBytes: countedHostBytes(this.#options.claimHostBytes),
          group: this.#options.run.groupOf(session.claim, session.epoch),
          claimDirectory: this.#options.run.claimDirectory(session.claim, session.epoch, worker.user),
          tenant: this.#options.run.tenantOf(options.tenant),
          sizeRevision: revision,
          priority: options.priority,
        },
        this.#options.assignTimeoutMs,
      );
      return worker;
    } catch (error) {
      // A worker that was sent nothing can still be used, unless its user is that of a claim; one that was may hold
      // half of an assignment.
      if (worker.session !== null || this.#isOfClaim(worker)) {
        void worker.end("its session could not be opened", { graceMs: this.#options.closeTimeoutMs });
      }
      throw error;
    } finally {
      this.#reserved.delete(worker);
      this.refill();
    }
  }

  /** @throws WorkerLostError when the worker has ended, Error when the kernel refuses */
  #placeInGroup(worker: Worker, { claim, epoch, devices }: SessionRecord): void {
    const { pid } = worker.process;
    const limits = limitsOf(this.#options.claimHostBytes, devices.length);
    const isPlaced = this.#options.cgroups.place(pid, this.#options.run.allocationName(claim, epoch), limits);
    // The kernel learns of the end of a process before this agent does.
    if (!isPlaced) throw new WorkerLostError(`worker ${worker.directory.id} has ended`);
  }

  #idle(device: PooledDevice): Worker[] {
    return this.workers.filter(
      (worker) =>
        worker.warmDevice === device.uuid &&
        worker.driver === device.driver &&
        (worker.phase === "warm" || worker.phase === "starting") &&
        worker.session === null &&
        !this.#reserved.has(worker),
    );
  }

  /**
   * Ends warm workers beyond the desired number. They occur when the session that had reserved one was abandoned, or
   * when an earlier agent was killed between replacing a worker and assigning it.
   */
  #endSurplus(device: PooledDevice): void {
    if (this.#isStopping) return;
    const warm = this.#idle(device).filter(({ phase }) => phase === "warm");
    const wanted = this.#wanted(device);
    const reason = this.#options.isIll(device.uuid)
      ? "its device is unhealthy"
      : wanted < this.#options.warm
        ? "its device has no memory for it"
        : "enough others are warm";
    for (const worker of warm.slice(wanted)) {
      void worker.end(reason, { graceMs: this.#options.closeTimeoutMs });
    }
  }

  /** The number of workers to keep warm. None on an unhealthy device: its workers would be useless once it is healthy again. */
  #wanted({ uuid }: PooledDevice): number {
    return this.#options.isIll(uuid) ? 0 : Math.min(this.#options.warm, this.#roomOn(uuid));
  }

  /**
   * The most workers that may have contexts on a device before they have sessions: no claim is charged for them yet.
   */
  #roomOn(uuid: string): number {
    const sessions = this.workers.flatMap((worker) => worker.session ?? this.#reserved.get(worker) ?? []);
    return this.#options.roomForWorkers(uuid, sessions);
  }

  #costsOf(uuid: string): DriverCosts {
    const device = this.#options.devices.find((each) => each.uuid === uuid);
    return device?.costs ?? { contextBytes: 0, printsBytes: 0, allocatesBytes: 0 };
  }

  /** Starts a worker for future sessions. Returns false when no user id or no port is free: the end of a worker tries again. */
  #spawnWarm({ device }: WarmSlot): boolean {
    try {
      this.#spawn(device, undefined, true);
      return true;
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      this.#log.warn({ device: device.uuid }, `no worker is kept warm: ${errorText(error)}`);
      return false;
    }
  }

  /**
   * `wanted`: the user as which the worker must run. `mayWarm`: whether it may make a context before it has a session.
   *
   * @throws MILLPOND_E_NO_WORKER when no user id or no port is free
   */
  #spawn(device: PooledDevice, wanted: number | undefined, mayWarm: boolean): Worker {
    // Workers of an earlier agent may listen elsewhere, until they end.
    const listening = this.workers.filter(({ tcpPort }) => this.#mayListenAt(tcpPort)).length;
    requirePort(this.#options.tcpPorts, listening);
    const inUse = new Set(this.workers.map(({ user }) => user));
    const user = wanted ?? this.#users?.take(inUse) ?? this.#options.containment.user;
    makeSoftgpuState(process.env, user);
    const directory = this.#options.run.createWorkerDirectory(`w-${randomBytes(4).toString("hex")}`, user);
    // When there is no room, its claim is charged first: until then the memory belongs to others.
    const hasRoom = mayWarm && this.#roomOn(device.uuid) > this.#idle(device).length;
    const child = spawnWorker({
      worker: this.#options.worker,
      driver: device.driver,
      id: directory.id,
      controlPath: directory.controlPath,
      controlKey: directory.controlKey,
      dataPath: directory.dataPath,
      peersPath: directory.peersPath,
      logPath: directory.logPath,
      tcpHost: this.#options.tcpHost,
      tcpPorts: this.#options.tcpPorts,
      warmDevice: hasRoom ? device.uuid : "",
      orphanSeconds: this.#options.orphanSeconds,
      reconnectGraceSeconds: this.#options.reconnectGraceSeconds,
      imageCachePath: this.#options.run.imageCachePath,
      gatesPath: this.#options.run.gatesPath,
      gateDevices: this.#options.devices
        .filter(({ driver }) => driver === device.driver)
        .map(({ uuid }) => uuid),
      claimsPath: this.#options.run.claimsPath,
      jitCachePath: directory.jitCachePath,
      containment: { ...this.#options.containment, user },
    });
    child.on("error", (error) =>
      this.#log.error({ worker: directory.id, err: error }, "a worker process failed"),
    );
    const worker = new Worker({
      directory,
      process: identifyProcess(child.pid ?? 0) ?? { pid: child.pid ?? 0, startTime: "", bootId: "" },
      driver: device.driver,
      warmDevice: device.uuid,
      tcpHost: this.#options.tcpHost,
      user,
      session: null,
      client: null,
      startedAt: Math.floor(Date.now() / 1000),
      child: child.pid === undefined ? null : child,
      onChange: (changed) => this.#changed(changed),
      onCalls: this.#options.onCalls,
    });
    worker.record();
    this.#watch(worker);
    return worker;
  }

  async #adoptDirectory(directory: WorkerDirectory): Promise<void> {
    const record = readWorkerRecord(directory);
    // Without a record, the agent died between starting the worker and recording it: it is found by its arguments.
    const identity = record?.process ?? findProcessesByArgument(directory.controlPath)[0];
    if (identity === undefined || !isProcessAlive(identity)) {
      this.#log.info({ worker: directory.id }, "removing the directory of a dead worker");
      if (record?.session) this.#keepEnded(record.session, record.client !== null);
      removeWorkerDirectory(directory);
      return;
    }
    const device = this.#options.devices.find((candidate) => candidate.uuid === record?.warmDevice);
    const worker = new Worker({
      directory,
      process: identity,
      driver: record?.driver ?? "",
      warmDevice: record?.warmDevice ?? "",
      tcpHost: record?.tcpHost ?? "",
      user:
        record?.user ?? (this.#options.containment.user === undefined ? undefined : userOfProcess(identity)),
      session: record?.session ?? null,
      client: record?.client ?? null,
      startedAt: record?.startedAt ?? Math.floor(Date.now() / 1000),
      child: null,
      onChange: (changed) => this.#changed(changed),
      onCalls: this.#options.onCalls,
    });
    this.#watch(worker);
    this.#log.info({ worker: directory.id, session: worker.session?.session }, "adopted a worker");
    if (worker.session === null && device?.driver !== worker.driver) {
      void worker.end("its device is not offered any more", { graceMs: this.#options.closeTimeoutMs });
    } else if (worker.session === null && worker.tcpHost !== this.#options.tcpHost) {
      void worker.end("the node listens elsewhere now", { graceMs: this.#options.closeTimeoutMs });
    } else if (worker.session === null && !this.#mayServe(worker)) {
      void worker.end("workers have other users now", { graceMs: this.#options.closeTimeoutMs });
    }
    // The worker's hello states its phase. Without one the record is sufficient, and the worker may send its hello
    // later.
    const timer = new AbortController();
    await Promise.race([
      worker.ready.catch(() => undefined),
      delay(adoptionPatienceMs, undefined, { signal: timer.signal }).catch(() => undefined),
    ]);
    timer.abort();
    if (worker.session === null && !this.#mayListenAt(worker.tcpPort)) {
      void worker.end("workers have other ports now", { graceMs: this.#options.closeTimeoutMs });
    }
  }

  /** 0: the worker has not reported its port. */
  #mayListenAt(port: number): boolean {
    const { tcpPorts: ports } = this.#options;
    return ports === undefined || port === 0 || isWithin(ports, port);
  }

  /** Whether a worker of an earlier agent runs as a user of the kind that this agent's workers have. */
  #mayServe({ user }: Worker): boolean {
    if (this.#users === undefined) return user === this.#options.containment.user;
    return user !== undefined && this.#users.has(user);
  }

  #watch(worker: Worker): void {
    this.#workers.set(worker.directory.id, worker);
    if (worker.session === null) {
      const timer = setTimeout(() => {
        this.#log.error(
          { worker: worker.directory.id },
          "the worker did not get ready in time and is killed",
        );
        signalProcess(worker.process, "SIGKILL");
      }, this.#options.startTimeoutMs);
      worker.ready.finally(() => clearTimeout(timer)).catch(() => undefined);
    }
    void worker.ended.then((end) => this.#bury(worker, end));
  }

  #changed(worker: Worker): void {
    // The worker was assigned a session but never took it: it serves no client, whatever its record states.
    if (worker.phase === "warm" && worker.session !== null && !this.#reserved.has(worker)) {
      void worker.end("its session was never opened", { graceMs: this.#options.closeTimeoutMs });
    }
    if (worker.phase === "assigned") this.#slotOf(worker)?.backoff.succeed();
    if (worker.phase === "warm") {
      this.#lastFailures.delete(worker.warmDevice);
      const slot = this.#slotOf(worker);
      if (slot !== undefined) this.#endSurplus(slot.device);
    }
    this.#options.onChange();
  }

  #slotOf(worker: Worker): WarmSlot | undefined {
    return this.#slots.find((slot) => slot.device.uuid === worker.warmDevice);
  }

  /** Called before the worker's directory is removed, so that an agent that is killed in between leaves one or the other. */
  #keepEnded({ session, claim, epoch }: SessionRecord, hadClient: boolean): void {
    this.#options.run.addEndedSession({ session, claim, epoch, hadClient });
  }

  #bury(worker: Worker, end: WorkerEnd): void {
    if (worker.session !== null) this.#keepEnded(worker.session, worker.hasHadClient);
    removeWorkerDirectory(worker.directory);
    this.#workers.delete(worker.directory.id);
    const isUserIdle = this.workers.every(({ user }) => user !== worker.user);
    if (this.#users !== undefined && isUserIdle) removeSoftgpuState(process.env, worker.user);
    const fields = { worker: worker.directory.id, session: worker.session?.session, reason: end.reason };
    if (end.ok) this.#log.info(fields, "a worker ended");
    else this.#log.warn(fields, "a worker failed");
    const slot = this.#slotOf(worker);
    if (slot !== undefined && worker.session === null && !end.ok && !this.#isStopping) {
      // That a waiting worker was killed does not mean that workers cannot start.
      if (!worker.hasBeenReady) this.#lastFailures.set(worker.warmDevice, end.reason);
      this.#retryLater(slot);
    }
    this.#options.onChange();
    this.refill();
  }

  #retryLater(slot: WarmSlot): void {
    if (slot.timer !== undefined) return;
    slot.timer = setTimeout(() => {
      slot.timer = undefined;
      this.refill();
    }, slot.backoff.fail());
  }
}

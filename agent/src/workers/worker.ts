// SPDX-License-Identifier: Apache-2.0

import type { ChildProcess } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { Backoff } from "../process/backoff.ts";
import { ComputeMeter } from "./compute-meter.ts";
import { isProcessAlive, type ProcessIdentity, signalProcess } from "../process/process-identity.ts";
import {
  readWorkerLogTail,
  type SessionRecord,
  type WorkerDirectory,
  type WorkerRecord,
  writeWorkerRecord,
} from "../run-directory/run-directory.ts";
import { hasSizes, type SessionAssignment, type SizeAnswer, type WantedSizes } from "./session-assignment.ts";
import {
  connectWorker,
  controlProtocol,
  type WorkerControl,
  type WorkerHello,
  type WorkerMessage,
} from "./worker-process.ts";

/**
 * - `starting`: the process runs and has not said hello yet.
 * - `warm`: waits for a session.
 * - `assigning`: a session was sent to it, its answer is awaited.
 * - `assigned`: waits for the client of its session.
 * - `connected`: serves its client.
 * - `closing`: ends its session, or was asked to end.
 * - `ended`: the process is gone.
 */
export type WorkerPhase = "starting" | "warm" | "assigning" | "assigned" | "connected" | "closing" | "ended";

/** How a worker's life ended. */
export interface WorkerEnd {
  /** Whether the worker ended its session in order, or had none. */
  readonly ok: boolean;
  /** One sentence without a full stop; the worker's own message if it sent one. */
  readonly reason: string;
}

/** The client of a session, as its worker described it. */
export interface WorkerClient {
  readonly transport: "shm" | "tcp";
  readonly clientPid: number;
  /** The process id as the program itself sees it, which may be in a separate process namespace. */
  readonly programPid: number;
  readonly program: string;
}

/** Counters of a worker since its session began. */
export interface WorkerFigures {
  /** Bytes in use on each device, by UUID. */
  readonly memoryUsedBytes: ReadonlyMap<string, number>;
  /** Measured time that each device has worked for it, by UUID. */
  readonly computeUsedNs: ReadonlyMap<string, number>;
  /** Calls executed, launches and waits included. */
  readonly commands: number;
  readonly launches: number;
  readonly waits: number;
  /** Why it is not parked although it is idle; empty: it is not idle, or parking is off. */
  readonly notParked: string;
}

/** The worker refused a session. */
export class WorkerRefusedError extends Error {
  override readonly name = "WorkerRefusedError";
  /** Whether the session's claim has no room for another context. */
  readonly isFull: boolean;

  constructor(message: string, isFull: boolean) {
    super(message);
    this.isFull = isFull;
  }
}

/** The worker ended, or its connection broke, before it took a session. */
export class WorkerLostError extends Error {
  override readonly name = "WorkerLostError";
}

interface PendingAssign {
  readonly session: string;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

export interface WorkerOptions {
  readonly directory: WorkerDirectory;
  readonly process: ProcessIdentity;
  readonly driver: string;
  readonly warmDevice: string;
  /** Address of its TCP port. */
  readonly tcpHost: string;
  /** Its user id, if it is not the agent's. */
  readonly user: number | undefined;
  /** The session in the record of an earlier agent, for a worker that is adopted. */
  readonly session: SessionRecord | null;
  readonly client: WorkerClient | null;
  /** Unix seconds. */
  readonly startedAt: number;
  /** The child process, for a worker that this agent started. */
  readonly child: ChildProcess | null;
  /** Called after each change of phase. */
  readonly onChange: (worker: Worker) => void;
  /** Called when the session has made calls since the worker's last report: from then until now, monotonic clock. */
  readonly onCalls: (
    session: SessionRecord,
    meanwhile: { readonly fromMs: number; readonly toMs: number },
  ) => void;
}

/** One worker process, followed over its control socket from its start or adoption to its end. */
export class Worker {
  readonly directory: WorkerDirectory;
  readonly driver: string;
  readonly warmDevice: string;
  readonly tcpHost: string;
  /** Its user id, if it is not the agent's. */
  readonly user: number | undefined;
  readonly process: ProcessIdentity;
  /** Whether an earlier agent started it. */
  readonly isAdopted: boolean;
  /** Resolves at the first hello; rejects when the worker ends before it. */
  readonly ready: Promise<void>;
  /** Resolves when the process is gone. Never rejects; never resolves after `letGo`. */
  readonly ended: Promise<WorkerEnd>;
  /** Unix seconds. */
  readonly startedAt: number;

  phase: WorkerPhase = "starting";
  /** The session, with the sizes that the worker has confirmed. */
  session: SessionRecord | null;
  /** The worker's answer to the last change of its session's sizes; null: none yet. */
  sizeAnswer: SizeAnswer | null = null;
  client: WorkerClient | null;
  /** Counters of the session as of the worker's last report. */
  figures: WorkerFigures = {
    memoryUsedBytes: new Map(),
    computeUsedNs: new Map(),
    commands: 0,
    launches: 0,
    waits: 0,
    notParked: "",
  };
  /** How busy it keeps its devices. */
  readonly compute = new ComputeMeter();
  /** Whether a client has been connected. */
  hasHadClient: boolean;
  /** Whether it has ever sent its hello. */
  hasBeenReady = false;
  apiHash = "";
  tcpPort = 0;

  readonly #onChange: (worker: Worker) => void;
  readonly #onCalls: WorkerOptions["onCalls"];
  /** Time of the worker's last report on its session, on the monotonic clock; undefined: none to this agent. */
  #toldMs: number | undefined;
  readonly #child: ChildProcess | null;
  readonly #letGo = new AbortController();
  readonly #exited = new AbortController();
  #control: WorkerControl | undefined;
  #controlFailure: string | undefined;
  #closed: WorkerEnd | undefined;
  #closeReason: string | undefined;
  #pendingAssign: PendingAssign | undefined;
  /** The sizes that were requested on this connection. */
  #wanted: WantedSizes | undefined;
  #markReady: () => void = () => undefined;
  #markNotReady: (error: Error) => void = () => undefined;

  constructor(options: WorkerOptions) {
    this.directory = options.directory;
    this.driver = options.driver;
    this.warmDevice = options.warmDevice;
    this.tcpHost = options.tcpHost;
    this.user = options.user;
    this.process = options.process;
    this.session = options.session;
    this.client = options.client;
    this.hasHadClient = options.client !== null;
    this.startedAt = options.startedAt;
    this.isAdopted = options.child === null;
    this.#onChange = options.onChange;
    this.#onCalls = options.onCalls;
    this.#child = options.child;
    this.#child?.once("exit", () => this.#exited.abort());
    this.ready = new Promise((resolve, reject) => {
      this.#markReady = resolve;
      this.#markNotReady = reject;
    });
    this.ready.catch(() => undefined); // Only those that wait for it see the failure.
    this.ended = this.#follow();
  }

  /** Writes the record by which a later agent adopts the worker. */
  record(): void {
    const record: WorkerRecord = {
      process: this.process,
      driver: this.driver,
      warmDevice: this.warmDevice,
      tcpHost: this.tcpHost,
      startedAt: this.startedAt,
      user: this.user ?? null,
      session: this.session,
      client: this.client,
    };
    writeWorkerRecord(this.directory, record);
  }

  /**
   * Assigns a session to a warm worker. Rejects with WorkerRefusedError when the worker refuses, with WorkerLostError
   * when it is gone, with another Error when it does not answer in time. The worker cannot be used after a failure.
   */
  async assign(session: SessionRecord, pass: SessionAssignment, timeoutMs: number): Promise<void> {
    if (this.phase !== "warm" || this.#control === undefined) {
      throw new WorkerLostError(`worker ${this.directory.id} is ${this.phase}, not warm`);
    }
    // Recorded before it is sent: if this agent dies in between, its successor must know the claim.
    this.session = session;
    this.record();
    this.#setPhase("assigning");
    const answer = new Promise<void>((resolve, reject) => {
      this.#pendingAssign = { session: session.session, resolve, reject };
    });
    this.#control.send({
      type: "assign",
      session: session.session,
      ...pass,
      devices: session.devices,
    });
    const timer = setTimeout(() => {
      this.#failAssign(new Error(`worker ${this.directory.id} did not answer within ${timeoutMs / 1000} s`));
    }, timeoutMs);
    try {
      await answer;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Asks the worker to change the sizes, once for each revision and connection. */
  resize(wanted: WantedSizes): void {
    const { session, phase } = this;
    const isServing = phase === "assigned" || phase === "connected";
    if (session === null || !isServing || hasSizes(session, wanted)) return;
    if (wanted.revision === this.#wanted?.revision || wanted.revision === this.sizeAnswer?.revision) return;
    this.#wanted = wanted;
    this.#control?.send({ type: "resize", session: session.session, ...wanted });
  }

  /** Asks the worker to end now; its client loses its device. Repeated on a new connection if this one breaks. */
  close(reason: string): void {
    this.#closeReason = reason;
    this.#control?.send({ type: "close", reason });
    if (this.phase !== "ended") this.#setPhase("closing");
  }

  /** Asks the worker to end; sends SIGTERM, then SIGKILL, when it has not ended within `graceMs` each. */
  async end(reason: string, options: { readonly graceMs: number }): Promise<WorkerEnd> {
    this.close(reason);
    // A worker that does not listen yet has nothing to lose and cannot receive a request.
    if (this.#control === undefined && this.session === null) signalProcess(this.process, "SIGTERM");
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      const end = await this.#endedWithin(options.graceMs);
      if (end !== undefined) return end;
      if (this.#letGo.signal.aborted) return { ok: false, reason: "the agent released it" };
      signalProcess(this.process, signal);
    }
    return this.ended;
  }

  /** Stops following the worker, which continues by itself. */
  letGo(): void {
    this.#letGo.abort();
    this.#control?.disconnect();
    this.#failAssign(new Error("the agent is stopping"));
    this.#markNotReady(new Error("the agent is stopping"));
  }

  async #endedWithin(timeoutMs: number): Promise<WorkerEnd | undefined> {
    const timer = new AbortController();
    try {
      return await Promise.race([
        this.ended,
        delay(timeoutMs, undefined, { signal: timer.signal }).catch(() => undefined),
      ]);
    } finally {
      timer.abort();
    }
  }

  #setPhase(phase: WorkerPhase): void {
    this.phase = phase;
    if (phase === "connected") this.hasHadClient = true;
    this.#onChange(this);
  }

  #failAssign(error: Error): void {
    this.#pendingAssign?.reject(error);
    this.#pendingAssign = undefined;
  }

  /** Keeps a control connection while the process lives, and returns when it is gone. */
  async #follow(): Promise<WorkerEnd> {
    await Promise.resolve(); // No caller has this worker yet, so none could notice its end.
    const wake = AbortSignal.any([this.#letGo.signal, this.#exited.signal]);
    const backoff = new Backoff({ firstMs: 5, ceilingMs: 500 });
    while (!wake.aborted && isProcessAlive(this.process)) {
      try {
        await this.#followConnection();
        backoff.succeed();
      } catch (error) {
        // No process is listening: not yet, or no longer. The loop's condition distinguishes the two.
        this.#controlFailure = error instanceof Error ? error.message : String(error);
      }
      await delay(backoff.fail(), undefined, { signal: wake }).catch(() => undefined);
    }
    if (this.#letGo.signal.aborted) return new Promise(() => undefined);
    if (this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null) {
      await new Promise((resolve) => this.#child?.once("exit", resolve));
    }
    return this.#end();
  }

  async #followConnection(): Promise<void> {
    let markClosed: (error?: Error) => void = () => undefined;
    const closed = new Promise<void>((resolve, reject) => {
      markClosed = (error) => (error === undefined ? resolve() : reject(error));
    });
    closed.catch(() => undefined);
    const control = await connectWorker(this.directory.controlPath, this.directory.controlKey, {
      onMessage: (message) => this.#receive(message),
      onClose: markClosed,
    });
    if (this.#letGo.signal.aborted) {
      control.disconnect();
      return;
    }
    this.#control = control;
    this.#controlFailure = undefined;
    this.#letGo.signal.addEventListener("abort", () => markClosed(), { once: true });
    try {
      await closed;
    } finally {
      this.#control = undefined;
    }
  }

  #end(): WorkerEnd {
    const code = this.#child?.exitCode ?? null;
    const signal = this.#child?.signalCode ?? null;
    const wasAsked = this.phase === "closing";
    const log = readWorkerLogTail(this.directory);
    const how =
      this.process.pid === 0
        ? "the worker program could not be started"
        : signal !== null
          ? `the worker was killed by ${signal}`
          : code !== null
            ? `the worker ended with status ${code}`
            : "the worker ended";
    const end: WorkerEnd = this.#closed ?? {
      ok: wasAsked && (code === 0 || code === null),
      reason: [how, log === "" ? this.#controlFailure : log].filter((part) => part !== undefined).join(": "),
    };
    this.#setPhase("ended");
    this.#failAssign(new WorkerLostError(end.reason));
    this.#markNotReady(new WorkerLostError(end.reason));
    return end;
  }

  #receive(message: WorkerMessage): void {
    switch (message.type) {
      case "hello":
        this.#receiveHello(message);
        return;
      case "assigned":
        if (this.#pendingAssign?.session !== message.session) return;
        this.#pendingAssign.resolve();
        this.#pendingAssign = undefined;
        this.#setPhase("assigned");
        return;
      case "resized":
        this.#receiveSizes(message.revision, message.ok ? "" : message.message);
        return;
      case "refused":
        // Without a session: the worker could not read the assignment at all.
        if (message.session === "" || this.#pendingAssign?.session === message.session) {
          this.#failAssign(new WorkerRefusedError(message.message, message.isFull));
        }
        return;
      case "connected":
        this.client = {
          transport: message.transport,
          clientPid: message.clientPid,
          programPid: message.programPid ?? message.clientPid,
          program: message.program,
        };
        this.record();
        this.#toldMs = performance.now();
        this.#setPhase("connected");
        return;
      case "stats":
        this.#noteCalls(message.commands);
        this.compute.note(message.devices, performance.now());
        this.figures = {
          memoryUsedBytes: new Map(message.devices.map((device) => [device.uuid, device.memoryUsedBytes])),
          computeUsedNs: new Map(message.devices.map((device) => [device.uuid, device.computeUsedNs])),
          commands: message.commands,
          launches: message.launches,
          waits: message.waits,
          notParked: message.notParked,
        };
        return;
      case "closed":
        this.#closed = { ok: message.ok, reason: message.reason };
        this.#setPhase("closing");
        return;
    }
  }

  /** The first report after an adoption is ignored: the agent does not know when its calls were made. */
  #noteCalls(commands: number): void {
    const [fromMs, toMs] = [this.#toldMs, performance.now()];
    this.#toldMs = toMs;
    if (fromMs !== undefined && this.session !== null && commands > this.figures.commands) {
      this.#onCalls(this.session, { fromMs, toMs });
    }
  }

  #receiveSizes(revision: number, refusal: string): void {
    if (this.session === null || this.#wanted?.revision !== revision) return;
    if (refusal === "") {
      this.session = { ...this.session, devices: this.#wanted.devices };
      this.record();
    }
    this.sizeAnswer = { revision, refusal };
    this.#wanted = undefined;
    this.#onChange(this);
  }

  #receiveHello(hello: WorkerHello): void {
    if (hello.protocol !== controlProtocol) {
      throw new Error(
        `the worker speaks control protocol ${hello.protocol}, this agent ${controlProtocol}: install both from one version`,
      );
    }
    if (hello.id !== this.directory.id) {
      throw new Error(`the worker in ${this.directory.path} reports the id ${hello.id}`);
    }
    if (hello.session !== (this.session?.session ?? "") && hello.session !== "") {
      throw new Error(`the worker serves session ${hello.session}, which is not in its record`);
    }
    // A request on a connection that broke may never have arrived.
    this.#wanted = undefined;
    this.apiHash = hello.apiHash;
    this.tcpPort = hello.tcpPort;
    if (hello.state === "warm") {
      // The connection broke during an assignment, which the worker never received.
      this.#failAssign(
        new WorkerLostError("the control connection broke before the worker took the session"),
      );
    } else if (this.#pendingAssign?.session === hello.session) {
      this.#pendingAssign.resolve();
      this.#pendingAssign = undefined;
    }
    if (this.#closeReason === undefined) this.#setPhase(hello.state);
    else this.close(this.#closeReason);
    this.hasBeenReady = true;
    this.#markReady();
  }
}

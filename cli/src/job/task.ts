// SPDX-License-Identifier: Apache-2.0

import { basename, dirname } from "node:path";
import { type ClaimValues, formatDuration } from "@millpond/api";
import { ClaimHolder, type WaitOptions } from "../claim/claim-holder.ts";
import { findProgram, runProgram, SignalRelay } from "../claim/program.ts";
import type { StoppedLeases } from "../claim/stopped-leases.ts";
import { type DisplayStream, WaitingDisplay } from "../claim/waiting-display.ts";
import type { Values } from "../command-line/command-values.ts";
import { ExitError } from "../command-line/errors.ts";
import { exitStatus } from "../command-table/command-table.ts";
import type { Connection } from "../connection/connection.ts";
import { programLibraryPath, programPreload } from "../host/library-path.ts";
import { countGpusOfHost, visibleDevices } from "../host/visible-devices.ts";
import { claimStateWord } from "../output/resources.ts";
import { gangEnvironment, rendezvousOf } from "./gang.ts";
import { describeGrant, watchTransports } from "./grant.ts";

/** Variables that would direct the program to another claim than the one created for it. */
const misleading = ["MILLPOND_WORKER", "MILLPOND_TICKET", "MILLPOND_LINK_SECRET"] as const;

/** The common data of all tasks of one `millpond run`, checked before the first call to the pool. */
export interface TaskPlan {
  readonly connection: Connection;
  readonly request: ClaimValues;
  /** Name of the existing claim to use; undefined: a new claim is created. */
  readonly existing: string | undefined;
  readonly values: Values<"run">;
  readonly program: string;
  readonly args: readonly string[];
  /** Path of the client library. */
  readonly client: string;
  /** `MILLPOND_LOG` of the program; undefined: unchanged. */
  readonly log: string | undefined;
  /** Renews the leases of claims while this process is stopped. */
  readonly stopped: StoppedLeases;
  /** `MILLPOND_PROFILE` of the program; undefined: none. */
  readonly profile: string | undefined;
}

export interface TaskOptions {
  /** Name of the claim; empty: a name is generated. */
  readonly claimName: string;
  /** Further variables of the program. */
  readonly environment: NodeJS.ProcessEnv;
  /** Prefix of each message; may be empty. */
  readonly label: string;
  /** Whether the program gets the standard input. */
  readonly hasInput: boolean;
  readonly onClaim: () => void;
  readonly onBegin: () => void;
}

/** Runs until its signal is aborted. */
type Watch = (signal: AbortSignal) => Promise<void>;

/** Runs one program in one claim, from the request to the release. Resolves with the exit status. */
export class Task {
  readonly #plan: TaskPlan;
  readonly #options: TaskOptions;
  readonly #path: string;

  /** @throws ExitError when there is no such program */
  constructor(plan: TaskPlan, options: TaskOptions) {
    this.#plan = plan;
    this.#options = options;
    this.#path = findProgram(plan.program, process.env);
  }

  async run(): Promise<number> {
    const { values, connection } = this.#plan;
    using signals = new SignalRelay();
    let created: ClaimHolder | undefined;
    try {
      using display = new WaitingDisplay(this.#stream);
      const waiting: WaitOptions = {
        timeoutSeconds: values.timeout ?? 0,
        signal: signals.cancelled,
        onWaiting: (why, title) => display.show(why, title),
      };
      const holder = await this.#makeHolder(waiting);
      created = holder;
      this.#plan.stopped.add(holder.claim.name);
      this.#options.onClaim();
      await holder.waitUntilBound(waiting);
      display.end(`claim ${holder.claim.name} is ${claimStateWord(holder.claim.state)}`);
      signals.cancelled.throwIfAborted();
      for (;;) {
        const watch = values.verbose ? await this.#describe(holder, signals.cancelled) : undefined;
        const environment = this.#environmentFor(holder);
        Object.assign(environment, await gangEnvironment(connection, holder.claim, signals.cancelled));
        // The caller's own token has all rights of the caller, so programs do not get it.
        environment["MILLPOND_TOKEN"] = await holder.programToken(signals.cancelled);
        this.#options.onBegin();
        const { requeues } = holder.claim;
        const { status, isTaken } = await this.#runWhileKept(holder, signals, { environment, watch });
        if (!isTaken) return status;
        if (!values.requeue) return exitStatus.preempted;
        signals.letGo();
        if (!(await holder.yieldNow(requeues, signals.cancelled))) return exitStatus.preempted;
        await this.#waitAgain(holder, waiting);
      }
    } catch (error) {
      if (!signals.cancelled.aborted) throw error;
      this.#say(created?.isOwn === true ? `cancelled, claim ${created.claim.name} is released` : "cancelled");
      throw new ExitError(signals.cancelStatus);
    } finally {
      if (created !== undefined) this.#plan.stopped.delete(created.claim.name);
      const problem = await created?.release();
      if (problem !== undefined) this.#say(problem);
      else if (values.verbose && created?.isOwn === true && !signals.cancelled.aborted) {
        this.#say(`claim ${created.claim.name} released`);
      }
    }
  }

  async #makeHolder(waiting: WaitOptions): Promise<ClaimHolder> {
    const { connection, existing, request, values, program } = this.#plan;
    if (existing !== undefined) return await ClaimHolder.join(connection, existing, waiting.signal);
    return await ClaimHolder.create(connection, request, {
      ...waiting,
      name: this.#options.claimName,
      noWait: !values.wait,
      program: basename(program),
      rendezvous: request.gang === undefined ? "" : await rendezvousOf(connection),
    });
  }

  /**
   * Reports the grant.
   *
   * @returns The watcher of the program's sessions while it runs; undefined: there is nothing to watch
   */
  async #describe(holder: ClaimHolder, cancelled: AbortSignal): Promise<Watch | undefined> {
    const { connection, values } = this.#plan;
    const { claim } = holder;
    const { text, transport } = await describeGrant(connection, claim, values.transport, cancelled);
    this.#say(text);
    if (transport === undefined) return undefined;
    return async (signal) => {
      const say = (told: string): void => this.#say(told);
      await watchTransports(connection, claim.name, transport, { signal, say });
    };
  }

  async #runWhileKept(
    holder: ClaimHolder,
    signals: SignalRelay,
    { environment, watch }: { readonly environment: NodeJS.ProcessEnv; readonly watch: Watch | undefined },
  ): Promise<{
    readonly status: number;
    /** The program's vGPUs were preempted, or were about to be. */
    readonly isTaken: boolean;
  }> {
    const done = new AbortController();
    const signal = this.#plan.values.noticeSignal ?? "SIGTERM";
    let isTaken = false;
    const onNotice = (seconds: number, why: string): void => {
      isTaken = true;
      this.#say(`the program loses its vGPUs in ${formatDuration(seconds)} and gets ${signal}: ${why}`);
      signals.send(signal);
    };
    const { requeues } = holder.claim;
    const kept = holder.keep(done.signal, onNotice).then((reason) => {
      if (reason === undefined) return;
      const isUnannounced = !isTaken && (holder.hasEnded || holder.claim.requeues > requeues);
      this.#say(`the program loses its vGPUs${isUnannounced ? ` and gets ${signal}` : ""}: ${reason}`);
      if (isUnannounced) {
        // There was no notice: the claim was released, or its node was lost.
        isTaken = true;
        signals.send(signal);
      }
    });
    const watched = watch?.(done.signal);
    try {
      const { program: name, args } = this.#plan;
      const { hasInput } = this.#options;
      return {
        status: await runProgram(this.#path, args, { name, environment, signals, hasInput }),
        isTaken,
      };
    } finally {
      done.abort();
      await Promise.all([kept, watched]);
    }
  }

  /** Waits for capacity again, with a new display. */
  async #waitAgain(holder: ClaimHolder, waiting: WaitOptions): Promise<void> {
    using display = new WaitingDisplay(this.#stream);
    await holder.waitUntilBound({ ...waiting, onWaiting: (why, title) => display.show(why, title) });
    display.end(`claim ${holder.claim.name} is ${claimStateWord(holder.claim.state)} again`);
  }

  #environmentFor(holder: ClaimHolder): NodeJS.ProcessEnv {
    const { connection, values, client, log, profile } = this.#plan;
    const environment: NodeJS.ProcessEnv = {
      ...process.env,
      MILLPOND_CONTROLLER: connection.controller,
      MILLPOND_CLAIM: holder.claim.name,
      ...this.#options.environment,
    };
    // The certificate itself: a context has no file, and the program may run in another directory.
    if (connection.ca !== undefined) environment["MILLPOND_CA"] = connection.ca;
    // For a lazy claim the program itself waits.
    if (values.timeout !== undefined) environment["MILLPOND_WAIT_TIMEOUT"] = String(values.timeout);
    if (values.transport !== undefined) environment["MILLPOND_TRANSPORT"] = values.transport;
    for (const variable of misleading) delete environment[variable];
    const visible = visibleDevices(process.env["CUDA_VISIBLE_DEVICES"], holder.claim.gpus, countGpusOfHost());
    if (visible !== undefined) environment["CUDA_VISIBLE_DEVICES"] = visible;
    environment["LD_LIBRARY_PATH"] = programLibraryPath(process.env, dirname(client), process.execPath);
    const preload = programPreload(process.env, dirname(client));
    if (preload !== undefined) environment["LD_PRELOAD"] = preload;
    if (log !== undefined) environment["MILLPOND_LOG"] = log;
    if (profile !== undefined) environment["MILLPOND_PROFILE"] = profile;
    return environment;
  }

  get #stream(): DisplayStream {
    const { label } = this.#options;
    // Tasks that share a terminal cannot share its last line.
    return label === ""
      ? process.stderr
      : { write: (text: string) => process.stderr.write(`${label}${text}`) };
  }

  /** Prints a message next to the program's own output. */
  #say(text: string): void {
    process.stderr.write(`${this.#options.label}millpond: ${text}\n`);
  }
}

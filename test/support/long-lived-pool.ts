// SPDX-License-Identifier: Apache-2.0
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { ClaimService, ClaimState, NodeState, PoolService } from "@millpond/api";
import { entry } from "@millpond/cli/testing/entry";
import { ControllerProcess } from "@millpond/controller/testing/controller-process";
import { TestAuthority } from "@millpond/controller/testing/test-authority";
import { makeTransport } from "@millpond/controller/testing/transport";
import { root } from "../../scripts/lib/paths.ts";
import { agentArguments } from "./agent.ts";
import { clientDirectory, examples, until } from "./pool.ts";
import { missingPrevious, unpackPrevious } from "./previous-release.ts";
import { Program, startProgram } from "./program.ts";
import type { Random } from "./random.ts";

/** The events in the life of a pool that is kept for years. */
export const poolEvents = [
  "controller killed",
  "controller restarted",
  "agent killed",
  "agent restarted",
  "state restored",
  "certificate renewed",
  "agent's token rotated",
  "users' token rotated",
  "signing key rotated",
  "signing keys revoked",
  "signing keys revoked while no agent runs",
  "package upgraded",
  "users' token rotated by the release before",
  "controller downgraded and upgraded",
] as const;
export type PoolEvent = (typeof poolEvents)[number];

const eventsOfPrevious: ReadonlySet<PoolEvent> = new Set([
  "users' token rotated by the release before",
  "controller downgraded and upgraded",
]);

/** The events that are possible here: the previous release may be missing from this clone. */
export const possibleEvents: readonly PoolEvent[] = poolEvents.filter(
  (event) => missingPrevious === undefined || !eventsOfPrevious.has(event),
);

type TokenKind = "node" | "user";

/** The memory that each program requests: 24 of them fit on the node. */
export const computePercent = 4;
export const memoryMiB = 64;

function entryOf(release: string): string {
  return join(release, "cli", "bin", "millpond.mjs");
}

/** A node of software GPUs and a controller with TLS, each of which is replaced while programs run. */
export class LongLivedPool implements AsyncDisposable {
  readonly #directory: string;
  readonly #authority: TestAuthority;
  readonly #url: string;
  #controller: ControllerProcess;
  #agent: Program;
  /** The token for programs that start now; that of the agent is in a file. */
  #userToken: string;
  /** Names of the tokens that were created and not revoked. */
  readonly #tokens: Readonly<Record<TokenKind, string[]>> = { node: [], user: [] };
  #made = 0;

  private constructor(directory: string, authority: TestAuthority, controller: ControllerProcess) {
    this.#directory = directory;
    this.#authority = authority;
    this.#controller = controller;
    this.#url = controller.url;
    this.#userToken = controller.userToken;
    this.#writeAgentToken(controller.agentToken);
    this.#agent = this.#startAgent();
  }

  static async start(): Promise<LongLivedPool> {
    const directory = mkdtempSync(join(tmpdir(), "millpond-rounds-"));
    const authority = new TestAuthority(directory);
    const tls = authority.files;
    const controller = await ControllerProcess.start(join(directory, "state"), { tls });
    const pool = new LongLivedPool(directory, authority, controller);
    await pool.#untilReady();
    return pool;
  }

  /** A program that holds device memory until its input ends, and then proves that it held it. */
  startProgram(): Program {
    const environment = {
      PATH: process.env["PATH"],
      LD_LIBRARY_PATH: clientDirectory,
      MILLPOND_CONTROLLER: this.#url,
      MILLPOND_CA: this.#authority.path,
      MILLPOND_TOKEN: this.#userToken,
      MILLPOND_MEMORY: `${memoryMiB}Mi`,
      MILLPOND_COMPUTE: `${computePercent}%`,
    };
    return startProgram(examples, ["memhold", "8"], environment, "pipe");
  }

  async happen(event: PoolEvent, random: Random): Promise<void> {
    switch (event) {
      case "controller killed":
        return await this.#restartController("SIGKILL");
      case "controller restarted":
        return await this.#restartController("SIGTERM");
      case "agent killed":
        return await this.#restartAgent("SIGKILL");
      case "agent restarted":
        return await this.#restartAgent("SIGTERM");
      case "state restored":
        return await this.#restore(random);
      case "certificate renewed":
        this.#authority.renew();
        this.#controller.signal("SIGHUP");
        return;
      case "agent's token rotated":
        return await this.#rotateAgentToken();
      case "users' token rotated":
        return await this.#rotateUserToken();
      case "signing key rotated":
        await this.millpond("key", "rotate");
        return;
      case "signing keys revoked":
        await this.millpond("key", "rotate", "--revoke");
        return;
      case "signing keys revoked while no agent runs":
        return await this.whileNoAgentRuns(async () => {
          await this.millpond("key", "rotate", "--revoke");
        });
      case "package upgraded":
        return await this.#restartBoth();
      case "users' token rotated by the release before":
        return await this.#rotateUserToken(this.#previous);
      case "controller downgraded and upgraded":
        return await this.#downgrade();
    }
  }

  /**
   * Runs a command of the administrator.
   *
   * @throws Error if it fails
   */
  async millpond(...args: readonly string[]): Promise<string> {
    return await this.#ask(args, root);
  }

  async #ask(args: readonly string[], release: string): Promise<string> {
    const { status, stdout, stderr } = await this.#command(args, release).finished;
    if (status !== 0) throw new Error(`millpond ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  /** Stops the agent, whose workers continue, and restarts it when `act` has resolved. */
  async whileNoAgentRuns(act: () => Promise<void>): Promise<void> {
    this.#agent.signal("SIGTERM");
    await this.#agent.finished;
    try {
      await act();
    } finally {
      this.#agent = this.#startAgent();
    }
    await this.#untilReady();
  }

  /** The output of the agent that runs now, on standard error. */
  get agentLog(): string {
    return this.#agent.stderr;
  }

  async sessions() {
    return (await this.#clients().pool.listSessions({})).sessions;
  }

  async devices() {
    return (await this.#clients().pool.listDevices({})).devices;
  }

  /** Names of the claims that have their devices. */
  async boundClaims(): Promise<string[]> {
    return await this.#claimsIn(ClaimState.BOUND);
  }

  /** Names of the claims that wait. */
  async pendingClaims(): Promise<string[]> {
    return await this.#claimsIn(ClaimState.PENDING);
  }

  async #claimsIn(wanted: ClaimState): Promise<string[]> {
    const { claims } = await this.#clients().claims.listClaims({});
    return claims.filter(({ state }) => state === wanted).map(({ name }) => name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#agent.signal("SIGTERM");
    await this.#agent.finished;
    await this.#controller.end("SIGTERM");
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #clients() {
    const { certificate: ca } = this.#authority;
    const transport = makeTransport(this.#url, this.#controller.userToken, {
      ca,
      patienceMs: 30_000,
      isRepeatable: true,
    });
    return { claims: createClient(ClaimService, transport), pool: createClient(PoolService, transport) };
  }

  /** The folder of the previous release, which is unpacked when it is first needed. */
  get #previous(): string {
    const folder = join(this.#directory, "previous");
    if (!existsSync(folder)) unpackPrevious(folder);
    return folder;
  }

  #command(args: readonly string[], release = root): Program {
    return new Program(
      spawn(process.execPath, [release === root ? entry : entryOf(release), ...args], {
        cwd: this.#directory,
        env: {
          PATH: process.env["PATH"],
          HOME: this.#directory,
          MILLPOND_CONTROLLER: this.#url,
          MILLPOND_TOKEN: this.#controller.userToken,
          MILLPOND_CA: this.#authority.path,
        },
        stdio: ["ignore", "pipe", "pipe"],
      }),
    );
  }

  get #state(): string {
    return join(this.#directory, "state");
  }

  get #agentTokenFile(): string {
    return join(this.#directory, "node.token");
  }

  #writeAgentToken(token: string): void {
    writeFileSync(this.#agentTokenFile, token, { mode: 0o600 });
  }

  /** Its workers outlive it, and serve their sessions for the next one. */
  #startAgent(): Program {
    const [command = "", ...args] = agentArguments({
      name: "node-a",
      controller: this.#url,
      tokenFile: this.#agentTokenFile,
      run: join(this.#directory, "run"),
    });
    return this.#command([command, ...args, "--drain", "none", "--warm", "0"]);
  }

  async #restartAgent(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    this.#agent.signal(signal);
    await this.#agent.finished;
    this.#agent = this.#startAgent();
    await this.#untilReady();
  }

  /** As the package of a new release does: both services at the same time. */
  async #restartBoth(): Promise<void> {
    this.#agent.signal("SIGTERM");
    await Promise.all([this.#agent.finished, this.#controller.end("SIGTERM")]);
    const started = this.#startController();
    this.#agent = this.#startAgent();
    await started;
    await this.#untilReady();
  }

  get #controllerOptions() {
    return { listen: new URL(this.#url).host, tls: this.#authority.files };
  }

  async #restartController(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    await this.#controller.end(signal);
    await this.#startController();
  }

  async #startController(): Promise<void> {
    this.#controller = await ControllerProcess.start(this.#state, this.#controllerOptions);
  }

  async #downgrade(): Promise<void> {
    // After a restore, grants that the backup lacks are known once the nodes are back.
    await this.#untilReady();
    await this.#controller.end("SIGTERM");
    await this.millpond("downgrade", "--state", this.#state);
    const previous = join(this.#previous, "controller", "src", "main.ts");
    this.#controller = await ControllerProcess.start(this.#state, {
      ...this.#controllerOptions,
      main: previous,
    });
    await this.#untilReady();
    await this.#restartController("SIGTERM");
  }

  async #restore(random: Random): Promise<void> {
    const said = await this.millpond("backup");
    const backup = /written (\S+) on/.exec(said)?.[1] ?? "";
    await this.#controller.end(random.pick(["SIGKILL", "SIGTERM"]));
    await this.millpond("restore", backup, "--state", this.#state);
    await this.#startController();
  }

  async #rotateAgentToken(): Promise<void> {
    this.#writeAgentToken(await this.#makeToken("node", ["--role", "agent", "--node", "node-a"]));
    await this.#restartAgent("SIGTERM");
    await this.#revokeEarlier("node");
  }

  /** @param release the release whose command creates the new token */
  async #rotateUserToken(release = root): Promise<void> {
    this.#userToken = await this.#makeToken("user", [], release);
    await this.#revokeEarlier("user");
  }

  async #makeToken(kind: TokenKind, options: readonly string[], release = root): Promise<string> {
    const names = this.#tokens[kind];
    const name = `${kind}-${(this.#made += 1)}`;
    names.push(name);
    return (await this.#ask(["token", "create", name, ...options], release)).trim();
  }

  /** Revokes all tokens of a kind except the newest. */
  async #revokeEarlier(kind: TokenKind): Promise<void> {
    for (const name of this.#tokens[kind].splice(0, this.#tokens[kind].length - 1)) {
      await this.millpond("token", "revoke", name);
    }
  }

  async #untilReady(): Promise<void> {
    await until(
      "a ready node",
      async () => (await this.#clients().pool.listNodes({})).nodes,
      ([node]) => node?.state === NodeState.READY,
    );
  }
}

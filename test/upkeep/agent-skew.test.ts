// SPDX-License-Identifier: Apache-2.0
// An agent of the release before under a controller of this one, its upgrade under a session, and the way back: rows of the
// table of docs/upgrade.md. Its workers are the stand-ins of the agents' tests, each release's own.
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, ClaimState, NodeState, PoolService, SessionState } from "@millpond/api";
import { ControllerProcess } from "@millpond/controller/testing/controller-process";
import { makeTransport } from "@millpond/controller/testing/transport";
import { expect, onTestFinished, test } from "vitest";
import { attach, firstDevice, openSession, type TestClient } from "@millpond/agent/testing/fixture";
import { root } from "../../scripts/lib/paths.ts";
import { until } from "../support/pool.ts";
import { missingPrevious, unpackPrevious } from "../support/previous-release.ts";
import { Program } from "../support/program.ts";

const why = missingPrevious === undefined ? "" : ` (${missingPrevious})`;
const GiB = 1n << 30n;

/** A node whose agent is of either release. */
class SkewedNode {
  readonly #directory: string;
  readonly #controller: ControllerProcess;
  #agent: Program | undefined;

  constructor(directory: string, controller: ControllerProcess) {
    this.#directory = directory;
    this.#controller = controller;
    const devices = [{ uuid: firstDevice, memoryBytes: Number(4n * GiB) }];
    writeFileSync(join(directory, "driver.json"), JSON.stringify({ devices }));
  }

  /** Starts an agent on the run directory of the previous one, which leaves its workers to it. */
  async runAgent(release: string): Promise<void> {
    await this.stop();
    const worker = join(this.#directory, `worker-${release === root ? "new" : "old"}`);
    const script = join(release, "agent", "test", "fake-worker.ts");
    writeFileSync(worker, `#!/bin/sh\nexec '${process.execPath}' '${script}' "$@"\n`);
    chmodSync(worker, 0o755);
    this.#agent = this.#start(release, worker);
  }

  /** Stops the agent; its workers wait for the next one. */
  async stop(): Promise<void> {
    this.#agent?.signal("SIGTERM");
    expect((await this.#agent?.finished)?.status ?? 0).toBe(0);
    this.#agent = undefined;
  }

  #start(release: string, worker: string): Program {
    const { url, directory } = this.#controller;
    const files = ["--driver", join(this.#directory, "driver.json"), "--worker", worker];
    const place = ["--run", join(this.#directory, "run"), "--token-file", join(directory, "agent.token")];
    // A worker that no agent adopts ends by itself after half a minute.
    const of = ["--name", "node-a", "--controller", url, ...files, ...place, "--drain", "none"];
    return new Program(
      spawn(process.execPath, [join(release, "cli", "bin", "millpond.mjs"), "agent", ...of], {
        cwd: this.#directory,
        env: { PATH: process.env["PATH"], HOME: this.#directory },
      }),
    );
  }
}

/** The worker of c28aa69 logs a message of an unknown type and continues; its stand-in treated any as `close`. */
function ignoreUnknownMessages(path: string): void {
  const source = readFileSync(path, "utf8");
  const mended = source.replace(
    "else if (!driver.isStubborn)",
    'else if (message.type === "close" && !driver.isStubborn)',
  );
  expect(mended).not.toBe(source);
  writeFileSync(path, mended);
}

test.skipIf(missingPrevious !== undefined)(
  `an agent of the release before works with this controller, is upgraded under a session, and set back${why}`,
  { timeout: 600_000 },
  async () => {
    const directory = mkdtempSync(join(tmpdir(), "millpond-agent-skew-"));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const previous = join(directory, "previous");
    unpackPrevious(previous);
    ignoreUnknownMessages(join(previous, "agent", "test", "fake-worker.ts"));
    mkdirSync(join(directory, "run"));
    const controller = await ControllerProcess.start(join(directory, "state"));
    onTestFinished(async () => void (await controller.end("SIGKILL")));
    const transport = makeTransport(controller.url, controller.userToken);
    const claims = createClient(ClaimService, transport);
    const pool = createClient(PoolService, transport);
    const access = createClient(AccessService, transport);
    const node = new SkewedNode(directory, controller);
    onTestFinished(() => node.stop());

    let agentUrl = "";
    const upgradeTo = async (release: string): Promise<void> => {
      await node.runAgent(release);
      // Until it reports, the node is still known as the previous agent described it.
      const found = await until(
        `the agent of the ${release === root ? "present" : "earlier"} release`,
        async () => (await pool.listNodes({})).nodes[0],
        (each) => each?.state === NodeState.READY && each.agentUrl !== agentUrl && each.warmWorkers > 0,
      );
      agentUrl = found?.agentUrl ?? "";
    };
    const begin = async (): Promise<TestClient> => {
      const { ticket, agentUrl: url } = await claims.createTicket({ claim: "train" });
      const { unixPath } = await openSession({ url }, ticket, "shm");
      return await attach({ path: unixPath }, ticket);
    };
    const connected = async (count: number) =>
      await until(
        `${count} connected sessions`,
        async () => (await pool.listSessions({})).sessions,
        (sessions) =>
          sessions.length === count && sessions.every(({ state }) => state === SessionState.CONNECTED),
      );

    await upgradeTo(previous);
    await claims.createClaim({ claim: { name: "train", memoryBytes: GiB, leaseSeconds: 3600 } });
    expect((await claims.getClaim({ name: "train" })).claim?.state).toBe(ClaimState.BOUND);
    const first = await begin();
    const [session] = await connected(1);
    // It knows only one key: after a rotation programs would fail, so it is refused unless it is forced.
    await expect(access.rotateKey({})).rejects.toThrow(
      /an agent is of a release .*: node-a.*MILLPOND_E_VERSION/,
    );
    await access.rotateKey({ revoke: true });
    const second = await until(
      "a session by a ticket of the new key",
      () => begin().catch(() => undefined),
      (client) => client !== undefined,
    );
    await connected(2);
    second?.[Symbol.dispose]();
    await connected(1);

    // The upgraded agent continues the session of a worker of the earlier release; keys can be rotated now.
    await upgradeTo(root);
    expect((await connected(1))[0]?.id).toBe(session?.id);
    expect(first.isConnected).toBe(true);
    await until(
      "a rotation that the agent knows of",
      () =>
        access.rotateKey({}).then(
          () => "rotated",
          (error: unknown) => String(error),
        ),
      (outcome) => outcome === "rotated",
    );
    const third = await begin();
    await connected(2);

    // After the downgrade, the older agent looks for the records of sessions where it wrote its own: it ends the newer
    // session.
    await upgradeTo(previous);
    await third.closed;
    expect((await connected(1))[0]?.id).toBe(session?.id);
    expect(first.isConnected).toBe(true);
    first[Symbol.dispose]();
    await connected(0);
    const last = await begin();
    await connected(1);
    last[Symbol.dispose]();
    await connected(0);
    expect((await claims.getClaim({ name: "train" })).claim?.state).toBe(ClaimState.BOUND);
  },
);

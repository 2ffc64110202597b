// SPDX-License-Identifier: Apache-2.0

// Several controller processes on one database.

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient, type Transport } from "@connectrpc/connect";
import { PoolService } from "@millpond/api";
import { ControllerProcess } from "./controller-process.ts";
import { PostgresServer } from "./postgres-server.ts";
import { makeTransport } from "./transport.ts";
import { until } from "./until.ts";

interface Member {
  readonly listen: string;
  readonly directory: string;
  readonly clockAheadSeconds: number;
  process: ControllerProcess;
}

/** Faults of controllers and their database. */
export type Fault =
  | "leader killed"
  | "leader ended"
  | "leader stopped"
  | "follower killed"
  | "database killed";

/** A broken connection is reported to a client; this timeout limits the wait for a silent one. */
const patienceMs = 60_000;

export class Cluster implements AsyncDisposable {
  readonly userToken = "user-of-all-controllers";
  readonly agentToken = "agent-of-all-controllers";
  readonly server: PostgresServer;
  readonly #url: string;
  readonly #directory: string;
  readonly #members: Member[] = [];

  private constructor(server: PostgresServer, url: string) {
    this.server = server;
    this.#url = url;
    this.#directory = mkdtempSync(join(tmpdir(), "millpond-cluster-"));
  }

  /** @param clocks How many seconds the clock of each controller is ahead. */
  static async start(clocks: readonly number[]): Promise<Cluster> {
    const server = await PostgresServer.start();
    const cluster = new Cluster(server, await server.makeDatabase());
    for (const [index, clockAheadSeconds] of clocks.entries()) {
      const member = {
        listen: `127.0.0.1:${await freePort()}`,
        directory: join(cluster.#directory, String(index)),
        clockAheadSeconds,
      };
      cluster.#members.push({ ...member, process: await cluster.#begin(member) });
    }
    return cluster;
  }

  /** Separated by commas. */
  get urls(): string {
    return this.#members.map(({ listen }) => `http://${listen}`).join(",");
  }

  /** For clients that wait for a leader. */
  transport(): Transport {
    return makeTransport(this.urls, this.userToken, { patienceMs });
  }

  /** The controller that reports itself as the leader; undefined if none of them does. */
  async leader(asked: readonly Member[] = this.#members): Promise<Member | undefined> {
    for (const member of asked) {
      const client = createClient(PoolService, makeTransport(`http://${member.listen}`, this.userToken));
      const version = await client.getVersion({}, { timeoutMs: 1000 }).catch(() => undefined);
      if (version?.leads === true) {
        return member;
      }
    }
    return undefined;
  }

  /** The leader, when there is one. */
  async untilLed(asked: readonly Member[] = this.#members): Promise<Member> {
    const names = asked.map(({ listen }) => listen).join();
    return await until(`a leader among ${names}`, () => this.leader(asked));
  }

  async term(): Promise<bigint> {
    const [row] = await this.server.query(this.#database, "SELECT term FROM millpond.pool");
    return BigInt((row as { readonly term: string }).term);
  }

  /**
   * Injects a fault.
   *
   * @returns A function that undoes it.
   */
  async strike(fault: Fault): Promise<() => Promise<void>> {
    const leader = await this.untilLed();
    const others = this.#members.filter((each) => each !== leader);
    const end = async (member: Member, signal: "SIGKILL" | "SIGTERM") => {
      await member.process.end(signal);
      return async () => {
        member.process = await this.#begin(member);
      };
    };
    switch (fault) {
      case "leader killed":
        return await end(leader, "SIGKILL");
      case "leader ended":
        return await end(leader, "SIGTERM");
      case "follower killed":
        return await end(others[0] ?? leader, "SIGKILL");
      case "database killed":
        await this.server.end("killed");
        await this.server.run();
        return async () => undefined;
      case "leader stopped":
        // It continues and believes that it is the leader, while another one is.
        leader.process.signal("SIGSTOP");
        await this.untilLed(others);
        leader.process.signal("SIGCONT");
        return async () => undefined;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#members.map((member) => member.process.end("SIGKILL")));
    await this.server[Symbol.asyncDispose]();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  get #database(): string {
    return new URL(this.#url).pathname.slice(1);
  }

  #begin(member: Omit<Member, "process">): Promise<ControllerProcess> {
    const { listen, clockAheadSeconds } = member;
    const { userToken, agentToken } = this;
    const keyFile = join(this.#directory, "pool.key");
    const options = { listen, store: this.#url, keyFile, clockAheadSeconds, userToken, agentToken };
    return ControllerProcess.start(member.directory, options);
  }
}

/** A free port, which a restarted controller keeps. */
async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address !== null ? address.port : 0;
}

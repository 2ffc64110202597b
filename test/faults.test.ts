// SPDX-License-Identifier: Apache-2.0
// Whatever dies: its own session ends with a clear message or continues, others are not affected, and nothing
// is left behind.
import { randomBytes } from "node:crypto";
import { createConnection, createServer, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { examples, Pool, until } from "./support/pool.ts";
import { childOf, type Program, startProgram } from "./support/program.ts";

/** Sufficient on a slow machine; a lease lasts longer. */
const withinMs = 15_000;

let pool: Pool;
/** It runs through all faults. */
let bystander: Program;

beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "2", "--device-memory", "1Gi");
  bystander = pool.startEndless(["-m", "256Mi", "--transport", "tcp"]);
  await pool.connected(1);
});

/** The bystander is unaffected, and has the pool to itself again. */
afterEach(async () => {
  expect(bystander.stderr).toBe("");
  await until(
    "nothing but the bystander",
    async () => {
      const { claims, sessions } = await pool.usage();
      return [claims.length, sessions.length, (await pool.servingWorkers()).length];
    },
    (counts) => counts.every((count) => count === 1),
  );
});

afterAll(async () => {
  try {
    bystander.signal("SIGINT");
    expect((await bystander.finished).status).toBe(130);
    await pool.isClean();
  } finally {
    await pool[Symbol.asyncDispose]();
  }
});

/** Starts a second client and returns it with the worker that serves it. */
async function victim(transport: string): Promise<{ program: Program; worker: number }> {
  const before = await pool.servingWorkers();
  const program = pool.startEndless(["-m", "256Mi", "--transport", transport]);
  await pool.connected(2);
  const [worker = 0] = await until(
    "a worker that serves it",
    async () => (await pool.servingWorkers()).filter((pid) => !before.includes(pid)),
    ({ length }) => length === 1,
  );
  return { program, worker };
}

describe.each(["shm", "tcp"])("over %s", (transport) => {
  it("a client that is killed gives everything back", async () => {
    const { program } = await victim(transport);
    process.kill(childOf(program.pid), "SIGKILL");
    expect((await program.finished).status).toBe(137);
    await pool.connected(1);
    await until(
      "one serving worker",
      () => pool.servingWorkers(),
      (all) => all.length === 1,
      withinMs,
    );
  });

  it("a worker that is killed ends its client with a clear error", async () => {
    const { program, worker } = await victim(transport);
    process.kill(worker, "SIGKILL");
    const { status, stderr } = await program.finished;
    expect(stderr).toMatch(/the GPU of this process is gone/);
    expect(status).toBe(1);
    await pool.connected(1);
  });
});

describe("the control plane", () => {
  it("an agent that is killed comes back, its sessions go on and new ones start", async () => {
    const [agent = 0] = await pool.processes(/ agent .*--name=node-a/);
    process.kill(agent, "SIGKILL");
    await until(
      "another agent",
      () => pool.processes(/ agent .*--name=node-a/),
      (all) => all.length === 1 && all[0] !== agent,
    );
    await until(
      "a ready node",
      () => pool.nodes(),
      ([node]) => node?.state === "ready",
    );
    const { stdout } = await pool.run(["-m", "64Mi"], ["vectoradd", "1000"]);
    expect(stdout).toContain("vectoradd: OK");
    await pool.connected(1);
  });

  it("a controller that is killed comes back, the sessions go on and new ones start", async () => {
    const [controller = 0] = await pool.processes(/ controller .*--state/);
    process.kill(controller, "SIGKILL");
    await until(
      "another controller",
      () => pool.processes(/ controller .*--state/),
      (all) => all.length === 1 && all[0] !== controller,
    );
    await until(
      "a program that runs again",
      () => pool.run(["-m", "64Mi"], ["vectoradd", "1000"]),
      ({ stdout }) => stdout.includes("vectoradd: OK"),
    );
    await pool.connected(1);
  });
});

describe("the network", () => {
  it("a TCP connection that is cut is made again; one that stays away ends its session on both sides", async () => {
    const env = pool.containerEnvironment({ MILLPOND_MEMORY: "256Mi", MILLPOND_TRANSPORT: "tcp" });
    const opened = await openSession(env);
    await using link = await Link.to(opened.tcpPort);
    const program = startProgram(examples, ["vectoradd", "1000", "--repeat", "100000000"], {
      PATH: process.env["PATH"],
      LD_LIBRARY_PATH: env["LD_LIBRARY_PATH"],
      MILLPOND_WORKER: `tcp:127.0.0.1:${link.port}`,
      MILLPOND_TICKET: opened.ticket,
      MILLPOND_RECONNECT_GRACE: "2",
    });
    await pool.connected(2);
    for (const connections of [2, 3]) {
      link.cut();
      await until(
        "another connection",
        () => Promise.resolve(link.connections),
        (count) => count === connections,
      );
    }
    await pool.connected(2);
    expect(program.stderr).toBe("");
    link.sever();
    const { status, stderr } = await program.finished;
    expect(stderr).toMatch(
      /the GPU of this process is gone: the connection to the worker .* could not be restored within 2 s/,
    );
    expect(status).toBe(1);
    await pool.connected(1);
  });

  it("garbage on every port changes nothing", async () => {
    const [node] = await pool.nodes();
    const env = pool.containerEnvironment({});
    const opened = await openSession(pool.containerEnvironment({ MILLPOND_MEMORY: "64Mi" }));
    const ports = [node?.agentUrl ?? "", env["MILLPOND_CONTROLLER"] ?? ""].map((url) =>
      Number(new URL(url).port),
    );
    for (const port of [...ports, opened.tcpPort]) {
      for (const bytes of [1, 100, 100_000]) await throwAt(port, randomBytes(bytes));
    }
    // The worker that received the garbage still accepts the client with the ticket.
    const { stdout } = await startProgram(examples, ["vectoradd", "1000"], {
      PATH: process.env["PATH"],
      LD_LIBRARY_PATH: env["LD_LIBRARY_PATH"],
      MILLPOND_WORKER: `tcp:127.0.0.1:${opened.tcpPort}`,
      MILLPOND_TICKET: opened.ticket,
    }).finished;
    expect(stdout).toContain("vectoradd: OK");
  });

  it("a wrong ticket, and one that was used, are refused with a reason", async () => {
    const opened = await openSession(pool.containerEnvironment({ MILLPOND_MEMORY: "64Mi" }));
    const attach = (ticket: string) =>
      startProgram(examples, ["vectoradd", "1000"], {
        PATH: process.env["PATH"],
        LD_LIBRARY_PATH: pool.containerEnvironment({})["LD_LIBRARY_PATH"],
        MILLPOND_WORKER: `tcp:127.0.0.1:${opened.tcpPort}`,
        MILLPOND_TICKET: ticket,
      }).finished;
    expect((await attach(`${opened.ticket}x`)).stderr).toMatch(/the ticket is not the one of this session/);
    expect((await attach(opened.ticket)).stdout).toContain("vectoradd: OK");
    await expect(post(opened.agentUrl, "NodeService/OpenSession", { ticket: opened.ticket })).rejects.toThrow(
      /MILLPOND_E_TICKET/,
    );
    await expect(post(opened.agentUrl, "NodeService/OpenSession", { ticket: "nonsense" })).rejects.toThrow(
      /MILLPOND_E_TICKET/,
    );
  });
});

interface Opened {
  readonly ticket: string;
  readonly agentUrl: string;
  readonly tcpPort: number;
}

async function post<T>(base: string, method: string, body: object, token = ""): Promise<T> {
  const response = await fetch(`${base}/millpond.v1.${method}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return JSON.parse(text) as T;
}

/** Performs manually the steps of the client library before it connects to its worker. */
async function openSession(env: NodeJS.ProcessEnv): Promise<Opened> {
  const base = env["MILLPOND_CONTROLLER"] ?? "";
  const token = env["MILLPOND_TOKEN"] ?? "";
  const memoryBytes = String((env["MILLPOND_MEMORY"] === "256Mi" ? 256 : 64) * 2 ** 20);
  const made = await post<{ claim: { name: string } }>(
    base,
    "ClaimService/CreateClaim",
    { claim: { gpus: 1, memoryBytes, computePercent: 10, owner: "test", leaseSeconds: 5 } },
    token,
  );
  const { name } = made.claim;
  await until(
    "a bound claim",
    () =>
      post<{ claim: { state: string } }>(
        base,
        "ClaimService/WaitClaim",
        { name, knownVersion: "0", timeoutSeconds: 1 },
        token,
      ),
    ({ claim }) => claim.state === "CLAIM_STATE_BOUND",
  );
  const wish = { claim: name, clientHost: "test", clientPid: 1, program: "test" };
  const issued = await post<{ ticket: string; agentUrl: string }>(
    base,
    "ClaimService/CreateTicket",
    wish,
    token,
  );
  const session = await post<{ tcpPort: number }>(issued.agentUrl, "NodeService/OpenSession", {
    ticket: issued.ticket,
    transport: "tcp",
  });
  return { ...issued, tcpPort: session.tcpPort };
}

function throwAt(port: number, bytes: Buffer): Promise<void> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: "127.0.0.1", port });
    // A reset is the right answer to garbage; a listener that waits for more is left after a moment.
    socket.on("error", () => resolve()).on("close", () => resolve());
    socket.setTimeout(300, () => socket.destroy());
    socket.resume().end(bytes);
  });
}

/** A network link that can be cut. */
class Link implements AsyncDisposable {
  port = 0;
  /** The number of connections so far. */
  connections = 0;
  #isSevered = false;
  readonly #sockets: Socket[] = [];
  readonly #server = createServer();

  static async to(target: number): Promise<Link> {
    const link = new Link();
    link.#server.on("connection", (near) => {
      if (link.#isSevered) {
        near.destroy();
        return;
      }
      link.connections += 1;
      const far = createConnection({ host: "127.0.0.1", port: target });
      link.#sockets.push(near, far);
      // To the other side an error looks like an end.
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        from.pipe(to);
        from.on("error", () => to.destroy()).on("close", () => to.destroy());
      }
    });
    await new Promise<void>((resolve) => link.#server.listen(0, "127.0.0.1", resolve));
    const address = link.#server.address();
    link.port = typeof address === "object" && address !== null ? address.port : 0;
    return link;
  }

  cut(): void {
    for (const socket of this.#sockets.splice(0)) socket.resetAndDestroy();
  }

  /** Cuts all connections, and refuses new ones. */
  sever(): void {
    this.#isSevered = true;
    this.cut();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

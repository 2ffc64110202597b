// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errorCodeOf } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { assertTrustedPeer, type Ends, NoServerError } from "./loopback-peer.ts";
import { makePromptAgent } from "./prompt-agent.ts";

const ends: Ends = {
  localAddress: "127.0.0.1",
  localPort: 0xc001,
  remoteAddress: "127.0.0.1",
  remotePort: 0x1c02,
};
const title =
  "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
const zeros = "00000000:0000";
const zeros6 = `${"0".repeat(24)}${zeros}`;
const v6 = (end: string): string => `0000000000000000FFFF0000${end}`;

function line(local: string, remote: string, state: string, owner: number, inode = 12_345): string {
  const fields = `${state} 00000000:00000000 00:00000000 00000000 ${owner}`;
  return `   0: ${local} ${remote} ${fields} 0 ${inode} 1 0 100 0 0 10 0\n`;
}

const ours = line("0100007F:C001", "0100007F:1C02", "01", 1000);
const held = (owner: number) => line("0100007F:1C02", "0100007F:C001", "01", owner);
/** The other end before its server accepts it: the kernel reports no user. */
const waiting = line("0100007F:1C02", "0100007F:C001", "01", 0, 0);

interface Shown {
  readonly tcp?: string;
  readonly tcp6?: string;
  readonly mapping?: string;
  readonly trusted?: string;
  readonly between?: Partial<Ends>;
}

/** Checks a connection against these contents of the kernel's tables. */
async function check(shown: Shown): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "millpond-tables-"));
  try {
    const { tcp = "", tcp6 = "", mapping = "         0          0 4294967295\n", trusted, between } = shown;
    const texts = {
      tcp: title + tcp,
      tcp6: title + tcp6,
      users: "root:x:0:0::/:/bin/sh\nmillpond:x:777:777::/:/bin/false\n",
      mapping,
    };
    for (const [name, text] of Object.entries(texts)) writeFileSync(join(folder, name), text);
    await assertTrustedPeer(
      { ...ends, ...between },
      { MILLPOND_TRUSTED_USERS: trusted },
      {
        tcp: join(folder, "tcp"),
        tcp6: join(folder, "tcp6"),
        users: join(folder, "users"),
        mapping: join(folder, "mapping"),
      },
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test.each<readonly [string, Shown]>([
  ["root", { tcp: ours + held(0) }],
  ["the user of installed services", { tcp: ours + held(777) }],
  ["the caller's user", { tcp: ours + held(process.geteuid?.() ?? 0) }],
  ["a user of MILLPOND_TRUSTED_USERS", { tcp: ours + held(4321), trusted: "12,4321" }],
  ["a user whom a mapping hides", { tcp: ours + held(65_534), mapping: "0 1000 1\n" }],
  ["root, who listens", { tcp: line("0100007F:1C02", zeros, "0A", 0) + ours + waiting }],
  [
    "root, who listens for both families",
    {
      tcp: ours,
      tcp6:
        line(`${"0".repeat(32)}:1C02`, zeros6, "0A", 0) +
        line(v6("0100007F:1C02"), v6("0100007F:C001"), "01", 0, 0),
    },
  ],
  ["whoever is beyond loopback", { tcp: held(4321), between: { remoteAddress: "10.0.0.7" } }],
  ["whoever is hidden, where the kernel shows no sockets", {}],
])("a server may be of %s", async (_whose, shown) => {
  await expect(check(shown)).resolves.toBeUndefined();
});

test.each<readonly [string, Shown]>([
  ["has the connection", { tcp: ours + held(4321) }],
  ["has it, and left the port to root", { tcp: line("0100007F:1C02", zeros, "0A", 0) + ours + held(4321) }],
  ["has not accepted it", { tcp: line("0100007F:1C02", zeros, "0A", 4321) + ours + waiting }],
  [
    "has not accepted it on all addresses",
    { tcp: line("00000000:1C02", zeros, "0A", 4321) + ours + waiting },
  ],
  [
    "listens for both families",
    {
      tcp: ours,
      tcp6:
        line(`${"0".repeat(32)}:1C02`, zeros6, "0A", 4321) +
        line(v6("0100007F:1C02"), v6("0100007F:C001"), "01", 0, 0),
    },
  ],
  [
    "has the connection in the other table",
    { tcp: ours, tcp6: line(v6("0100007F:1C02"), v6("0100007F:C001"), "01", 4321) },
  ],
  [
    "is on the loopback of IPv6",
    {
      tcp6: line(`${"0".repeat(24)}01000000:1C02`, `${"0".repeat(24)}01000000:C001`, "01", 4321),
      between: { localAddress: "::1", remoteAddress: "::1" },
    },
  ],
  ["is nobody, where no mapping hides users", { tcp: ours + held(65_534) }],
  ["is after many others", { tcp: ours + line("0100007F:0016", zeros, "0A", 0).repeat(5_000) + held(4321) }],
])("another user's server is refused that %s", async (_what, shown) => {
  const refused = check(shown);
  await expect(refused).rejects.toThrow(
    /port 7170 of this machine is served by user (?:4321|65534), which is not root/,
  );
  expect(await refused.catch(errorCodeOf)).toBe("MILLPOND_E_TLS");
});

test("a server that is gone is told from a stranger", async () => {
  await expect(check({ tcp: ours })).rejects.toThrow(NoServerError);
  await expect(check({ tcp: ours + waiting })).rejects.toThrow(NoServerError);
});

test.each(["x", "1,", "4294967295", "-1"])("MILLPOND_TRUSTED_USERS=%s is refused", async (trusted) => {
  const refused = check({ tcp: ours + held(4321), trusted });
  await expect(refused).rejects.toThrow(/MILLPOND_TRUSTED_USERS='.*' is not understood/);
});

test.each(["127.0.0.1", "::1", "::"])("a server of one's own user on %s is asked", async (host) => {
  const server = createServer((socket) => socket.end("HTTP/1.1 204 No Content\r\n\r\n")).listen(0, host);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const url = `http://${host === "::1" ? "[::1]" : "127.0.0.1"}:${port}`;
  const agent = makePromptAgent(url);
  const [response] = (await once(get(url, { agent }), "response")) as [IncomingMessage];
  expect(response.statusCode).toBe(204);
  agent.destroy();
});

const asRoot = process.getuid?.() === 0 ? test : test.skip;

asRoot.each([
  ["127.0.0.1", "accepts"],
  ["127.0.0.1", "accepts nothing until it was sent something"],
  ["::1", "accepts"],
  ["::", "accepts"],
  ["::", "accepts nothing until it was sent something"],
])("a user who took a port on %s and %s hears nothing", async (host, how) => {
  // The second kind blocks its event loop for a while, and would afterwards read what it was sent.
  const program = `
    const server = require("node:net").createServer((socket) => {
      socket.on("data", (bytes) => process.stdout.write("heard " + bytes));
      socket.on("error", () => undefined);
    });
    server.listen(0, ${JSON.stringify(host)}, () => {
      require("node:fs").writeSync(1, server.address().port + "\\n");
      if (${how !== "accepts"}) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
    });`;
  const squatter = spawn(process.execPath, ["-e", program], {
    uid: 4321,
    gid: 4321,
    cwd: "/",
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void squatter.kill());
  const [first] = (await once(squatter.stdout, "data")) as [Buffer];
  let said = "";
  squatter.stdout.on("data", (bytes: Buffer) => {
    said += bytes.toString();
  });
  const url = `http://${host === "::1" ? "[::1]" : "127.0.0.1"}:${Number(first)}`;
  const request = get(url, { agent: makePromptAgent(url), headers: { authorization: "Bearer secret" } });
  const [error] = (await once(request, "error")) as [Error];
  expect(error.message).toContain("is served by user 4321");
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(said).toBe("");
});

// SPDX-License-Identifier: Apache-2.0

// Determines which user serves a connection over loopback. Without TLS nothing else distinguishes a service from another
// user's program that has taken the service's port while it was down, and waits for tokens. The client library asks the
// kernel for one socket (native/protocol/transport/loopback_peer.h); Node has no netlink, so the tables in /proc are read
// here.

import { type FileHandle, open, readFile } from "node:fs/promises";
import { isIPv4 } from "node:net";
import { millpondError } from "@millpond/api";
import { isLoopbackAddress } from "../addresses/loopback.ts";

/** The two ends of a connection, from the client's side. */
export interface Ends {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
}

/** Where the kernel shows sockets and the mapping of users, and the users of this machine. */
export interface UserFiles {
  readonly tcp: string;
  readonly tcp6: string;
  readonly users: string;
  readonly mapping: string;
}

const filesHere: UserFiles = {
  tcp: "/proc/net/tcp",
  tcp6: "/proc/net/tcp6",
  users: "/etc/passwd",
  mapping: "/proc/self/uid_map",
};

/** How often the tables are read in search of a server, because they change meanwhile. */
const attempts = 3;

/** No process serves the connection any more, for example because a service is restarting. */
export class NoServerError extends Error {}

/**
 * Refuses a server on loopback that belongs to neither root, nor this process's user, nor the user `millpond` of installed
 * services, nor a user of MILLPOND_TRUSTED_USERS. Other addresses are accepted. So is every server if the kernel shows no
 * sockets, and a server whose user is hidden by a user namespace.
 *
 * @throws MILLPOND_E_TLS, NoServerError
 */
export async function assertTrustedPeer(
  ends: Ends,
  environment: NodeJS.ProcessEnv = process.env,
  files: UserFiles = filesHere,
): Promise<void> {
  if (!isLoopbackAddress(ends.remoteAddress)) return;
  const users = await serversOf(ends, files);
  const own = process.geteuid?.();
  const strangers = users.filter((user) => user !== 0 && user !== own);
  if (strangers.length === 0) return;
  const trusted = parseTrustedUsers(environment["MILLPOND_TRUSTED_USERS"]);
  const service = /^millpond:[^:]*:(\d+):/m.exec(await textOf(files.users))?.[1];
  if (service !== undefined) trusted.add(Number(service));
  if (!/^\s*(?:0\s+0\s+4294967295\s*)?$/.test(await textOf(files.mapping))) trusted.add(hiddenUser);
  const stranger = strangers.find((user) => !trusted.has(user));
  if (stranger === undefined) return;
  throw millpondError(
    "MILLPOND_E_TLS",
    `nothing was sent: port ${ends.remotePort} of this machine is served by user ${stranger}, which is not root, millpond or your own`,
    {
      remedy:
        "If that user may see your token, set MILLPOND_TRUSTED_USERS to its id, or use a service with TLS.",
    },
  );
}

/** The user id that stands for all users hidden by a user namespace. */
const hiddenUser = 65_534;

function parseTrustedUsers(text = ""): Set<number> {
  if (text === "") return new Set();
  const users = text.split(",");
  if (users.every((user) => /^\d{1,10}$/.test(user) && Number(user) < 4_294_967_295))
    return new Set(users.map(Number));
  throw millpondError(
    "MILLPOND_E_INVALID",
    `MILLPOND_TRUSTED_USERS='${text.slice(0, 100)}' is not understood`,
    {
      remedy: "Use user ids, such as 1000, separated by commas.",
    },
  );
}

/** Users of the processes that have the other end, or will accept it; empty if the kernel does not show TCP sockets. */
async function serversOf(ends: Ends, { tcp, tcp6 }: UserFiles): Promise<readonly number[]> {
  const wanted = new Wanted(ends);
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    // Most servers listen on 127.0.0.1, and have already accepted the connection.
    const first = await wanted.look([tcp]);
    if (first.holder !== undefined) return [first.holder];
    // Listeners come first in a table, and the IPv6 table holds those of both families. So a listener found here existed
    // while the connection waited to be accepted: it belongs to that connection and has not replaced another one.
    const seen = await wanted.look([tcp6, tcp]);
    if (seen.holder !== undefined) return [seen.holder];
    if (seen.isWaiting && seen.listeners.length > 0) return seen.listeners;
    if (!seen.isOurs) return [];
  }
  throw new NoServerError(`no process of this machine serves the connection to port ${ends.remotePort}`);
}

/** The result of reading the tables once. */
interface Seen {
  /** User of the process that has the other end. */
  holder?: number;
  /** The other end exists, but no process has it yet. */
  isWaiting: boolean;
  /** Users of the processes that listen at the other end. */
  readonly listeners: number[];
  /** Our own end is in the tables. */
  isOurs: boolean;
}

/** The lines of the tables that concern one connection. */
class Wanted {
  readonly #peer: readonly string[];
  readonly #own: readonly string[];
  readonly #listening: readonly string[];

  constructor({ localAddress, localPort, remoteAddress, remotePort }: Ends) {
    const local = kernelForms(localAddress, localPort);
    const remote = kernelForms(remoteAddress, remotePort);
    const port = portForm(remotePort);
    const zeros = "0".repeat(8);
    this.#peer = remote.map((form, index) => ` ${form} ${local[index] ?? ""} `);
    this.#own = local.map((form, index) => ` ${form} ${remote[index] ?? ""} `);
    const all = [`${zeros}:${port}`, `${zeros.repeat(4)}:${port}`];
    this.#listening = [...remote, ...all].map(
      (form) => ` ${form} ${zeros.repeat(form.indexOf(":") / 8)}:0000 0A `,
    );
  }

  /** Reads the tables until the process with the other end is found. */
  async look(paths: readonly string[]): Promise<Seen> {
    const seen: Seen = { isWaiting: false, listeners: [], isOurs: false };
    for (const path of paths) {
      for await (const lines of linesOf(path)) {
        this.#take(lines, seen);
        if (seen.holder !== undefined) return seen;
      }
    }
    return seen;
  }

  #take(lines: string, seen: Seen): void {
    seen.isOurs ||= this.#own.some((form) => lines.includes(form));
    for (const form of this.#listening) {
      for (let at = lines.indexOf(form); at >= 0; at = lines.indexOf(form, at + 1)) {
        seen.listeners.push(ownerAt(lines, at).user);
      }
    }
    for (const form of this.#peer) {
      const at = lines.indexOf(form);
      if (at < 0) continue;
      const { user, isHeld } = ownerAt(lines, at);
      if (isHeld) seen.holder = user;
      else seen.isWaiting = true;
    }
  }
}

/** User and inode of the socket whose line has its first address here. Without an inode no process has the socket. */
function ownerAt(lines: string, at: number): { readonly user: number; readonly isHeld: boolean } {
  const end = lines.indexOf("\n", at);
  const [, , , , , , user = "", , inode = ""] = lines
    .slice(at + 1, end)
    .split(/\s+/)
    .slice(0, 9);
  return { user: Number(user), isHeld: inode !== "0" };
}

/** Whole lines of a table, several at a time; none if the table does not exist. */
async function* linesOf(path: string): AsyncGenerator<string> {
  let file: FileHandle;
  try {
    file = await open(path);
  } catch {
    // Systems without this table, and kernels without IPv6.
    return;
  }
  try {
    const buffer = Buffer.allocUnsafe(65_536);
    let rest = "";
    for (;;) {
      const { bytesRead } = await file.read(buffer, 0, buffer.length, null);
      if (bytesRead === 0) return;
      const text = rest + buffer.toString("latin1", 0, bytesRead);
      const end = text.lastIndexOf("\n") + 1;
      rest = text.slice(end);
      yield text.slice(0, end);
    }
  } finally {
    await file.close();
  }
}

/**
 * An end in the kernel's notation: words of the address in this machine's byte order, and the port. IPv4 in the notation of
 * both tables.
 */
function kernelForms(address: string, port: number): string[] {
  const plain = address.replace(/^::ffff:/i, "");
  const prefix = "0".repeat(16);
  if (!isIPv4(plain)) return [`${prefix}${"0".repeat(8)}${wordOf([0, 0, 0, 1])}:${portForm(port)}`];
  const form = `${wordOf(plain.split(".").map(Number))}:${portForm(port)}`;
  return [form, `${prefix}${wordOf([0, 0, 0xff, 0xff])}${form}`];
}

function wordOf(bytes: readonly number[]): string {
  const view = new Uint32Array(Uint8Array.from(bytes).buffer);
  return (view[0] ?? 0).toString(16).toUpperCase().padStart(8, "0");
}

function portForm(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, "0");
}

async function textOf(path: string): Promise<string> {
  try {
    return await readFile(path, "latin1");
  } catch {
    return "";
  }
}

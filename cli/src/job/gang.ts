// SPDX-License-Identifier: Apache-2.0

// The environment by which the programs of a gang find each other. Each program is one member, on the machine of its
// `millpond run`.

import { connect, createServer, isIP, type Server } from "node:net";
import { hostname } from "node:os";
import type { Claim } from "@millpond/api";
import { splitAddresses } from "@millpond/platform";
import type { Connection } from "../connection/connection.ts";

/** How long to try to determine this machine's address by connecting to a controller. */
const connectMs = 3000;

/**
 * Returns the address for the other members of a gang, `host:port`: the address by which this machine reaches the
 * controller, and a port that is free now.
 */
export async function rendezvousOf({ controller }: Connection): Promise<string> {
  const [address = ""] = splitAddresses(controller);
  const [host, port] = await Promise.all([ownAddress(new URL(address)), freePort()]);
  return `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
}

async function ownAddress(url: URL): Promise<string> {
  const port = Number(url.port) || (url.protocol === "https:" ? 443 : 80);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const found = await new Promise<string | undefined>((resolve) => {
    const socket = connect({ host, port });
    const end = (local: string | undefined): void => {
      socket.destroy();
      resolve(local);
    };
    socket.setTimeout(connectMs, () => end(undefined));
    socket.once("connect", () => end(socket.localAddress));
    socket.once("error", () => end(undefined));
  });
  return found === undefined ? hostname() : found.replace(/^::ffff:/, "");
}

async function freePort(): Promise<number> {
  const server: Server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, resolve);
  });
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("the socket has no port");
  return address.port;
}

/** The variables of a member's program; none if its claim is in no gang. */
export async function gangEnvironment(
  connection: Connection,
  claim: Claim,
  signal: AbortSignal,
): Promise<NodeJS.ProcessEnv> {
  if (claim.gang === "") return {};
  const { claims } = await connection.claims.listClaims({ gang: claim.gang, includeEnded: true }, { signal });
  return describeGang(claim, claims);
}

/** @param members In order of arrival; of two with the same rank, the later one has replaced the other. */
export function describeGang(claim: Claim, members: readonly Claim[]): NodeJS.ProcessEnv {
  const places = Array.from({ length: claim.gangSize }, () => "");
  for (const { gangRank, rendezvous } of members) {
    if (gangRank < places.length) places[gangRank] = rendezvous;
  }
  const hosts = places.map((place) => hostOf(place));
  const [first = ""] = places;
  const rank = String(claim.gangRank);
  const size = String(claim.gangSize);
  const [host, port] = [hostOf(first), first.slice(first.lastIndexOf(":") + 1)];
  return {
    MILLPOND_RANK: rank,
    MILLPOND_WORLD_SIZE: size,
    MILLPOND_HOSTS: hosts.join(","),
    RANK: rank,
    WORLD_SIZE: size,
    LOCAL_RANK: "0",
    // torchrun reads these variables in place of its options.
    PET_NNODES: size,
    PET_NODE_RANK: rank,
    PET_NPROC_PER_NODE: String(claim.gpus),
    ...(host === ""
      ? {}
      : { MASTER_ADDR: host, MASTER_PORT: port, PET_MASTER_ADDR: host, PET_MASTER_PORT: port }),
  };
}

/** `[fe80::1]:29500` → `fe80::1`. */
function hostOf(place: string): string {
  return place.slice(0, Math.max(0, place.lastIndexOf(":"))).replace(/^\[|\]$/g, "");
}

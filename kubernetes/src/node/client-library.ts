// SPDX-License-Identifier: Apache-2.0

// The client library as containers get it. It is copied to the host under a name made from its content, so that an upgrade
// changes nothing for containers that run, nor for those that are started again in place with what they were given.

import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { join } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { libraryDirectory } from "../webhook/mutate-pod.ts";

export interface Mount {
  readonly hostPath: string;
  readonly containerPath: string;
}

/** What a container is given, all of it read-only. */
export interface ClientLibrary {
  /** 16 hexadecimal digits of its content. */
  readonly version: string;
  readonly mounts: readonly Mount[];
}

/**
 * Where dynamic linkers look without being told: of Debian and its kin, and of all others. So programs find the library
 * whatever `LD_LIBRARY_PATH` their image sets.
 */
const linkerDirectories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"] as const;

/**
 * Copies the libraries of a directory to the host, whole or not at all.
 *
 * @param source Directory with `libcuda.so.1` and what belongs to it.
 * @param target Directory as this process sees it.
 * @param hostTarget The same directory as the host sees it.
 * @throws MILLPOND_E_NOT_INSTALLED
 */
export function installClientLibrary(source: string, target: string, hostTarget = target): ClientLibrary {
  const names = readLibraries(source);
  const hash = createHash("sha256");
  for (const name of names) hash.update(`${name}\0`).update(readFileSync(join(source, name)));
  const version = hash.digest("hex").slice(0, 16);
  const there = join(target, version);
  mkdirSync(target, { recursive: true, mode: 0o755 });
  if (!readdirSync(target).includes(version)) {
    const draft = mkdtempSync(join(target, ".draft-"));
    for (const name of names) {
      copyFileSync(join(source, name), join(draft, name));
      chmodSync(join(draft, name), 0o755);
    }
    chmodSync(draft, 0o755);
    try {
      renameSync(draft, there);
    } catch (error) {
      // Another was faster: what is there is the same.
      rmSync(draft, { recursive: true, force: true });
      if (!readdirSync(target).includes(version)) throw error;
    }
  }
  const hostDirectory = join(hostTarget, version);
  return {
    version,
    mounts: [
      { hostPath: hostDirectory, containerPath: libraryDirectory },
      ...linkerDirectories.flatMap((directory) =>
        names.map((name) => ({ hostPath: join(hostDirectory, name), containerPath: join(directory, name) })),
      ),
    ],
  };
}

/**
 * What a container is given, and the sockets of the workers of its node's agent, by which it shares memory with a GPU of its own
 * node. Nothing else is in that directory, and who connects needs a ticket of the controller.
 *
 * @param path The same for host and containers: programs are told it by the agent. Made where it is not there, because a
 * container with a mount of nothing does not start.
 */
export function withSockets(library: ClientLibrary, path: string): ClientLibrary {
  mkdirSync(path, { recursive: true, mode: 0o711 });
  return { ...library, mounts: [...library.mounts, { hostPath: path, containerPath: path }] };
}

function readLibraries(source: string): string[] {
  let names: string[] = [];
  try {
    names = readdirSync(source)
      .filter((name) => /\.so(\.\d+)*$/.test(name))
      .sort();
  } catch {
    // Then it has none.
  }
  if (!names.includes("libcuda.so.1")) {
    throw millpondError("MILLPOND_E_NOT_INSTALLED", `there is no libcuda.so.1 in ${quote(source)}`, {
      remedy: "Name the directory of the client library with --library.",
    });
  }
  return names;
}

/** The library as a CDI specification of one device, and the device's full name. */
export function toCdi(domain: string, { version, mounts }: ClientLibrary) {
  const kind = `${domain}/client`;
  return {
    deviceId: `${kind}=${version}`,
    fileName: `${domain}-client-${version}.json`,
    specification: {
      cdiVersion: "0.6.0",
      kind,
      devices: [
        {
          name: version,
          containerEdits: {
            mounts: mounts.map((mount) => ({ ...mount, options: ["ro", "nosuid", "nodev", "bind"] })),
          },
        },
      ],
    },
  };
}

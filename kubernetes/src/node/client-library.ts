// SPDX-License-Identifier: Apache-2.0

// The client library for containers. It is copied to the host under a name derived from its content, so that an upgrade
// does not affect running containers, nor containers that are restarted in place with their old mounts.

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

/** The files that a container gets, all of them read-only. */
export interface ClientLibrary {
  /** 16 hexadecimal digits of the hash of its content. */
  readonly version: string;
  readonly mounts: readonly Mount[];
}

/**
 * Default directories of dynamic linkers, of Debian and its relatives and of all others. There programs find the
 * library whatever `LD_LIBRARY_PATH` their image sets.
 */
const linkerDirectories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"] as const;

/**
 * Copies the libraries of a directory to the host, atomically.
 *
 * @param source directory with `libcuda.so.1` and its companions
 * @param target directory as this process sees it
 * @param hostTarget the same directory as the host sees it
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
      // Another process was faster; its copy is identical.
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
 * Adds the directory of the sockets of the node's workers, by which a container shares memory with a GPU of its own node. The
 * directory contains nothing else, and a process that connects needs a ticket of the controller.
 *
 * @param path the same on the host and in containers, because programs get it from the agent. It is created if it is
 * missing, because a container with a mount of a missing path does not start
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
    // A directory that cannot be read contains no libraries.
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

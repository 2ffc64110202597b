// SPDX-License-Identifier: Apache-2.0

// Defaults of an agent on a host where Millpond is installed.

import { chmodSync, existsSync, mkdirSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { userStateDirectory } from "@millpond/platform";
import { findDriver } from "../host/driver-search.ts";
import { findNativeFiles, type NativeFiles } from "../host/native-files.ts";
import { configDirectory } from "../service/service-options.ts";

/** Options of an agent whose defaults depend on this host. */
export interface NodeOptions {
  readonly options: {
    readonly name: string;
    readonly controller: string;
    readonly tokenFile: string;
    readonly driver: string;
    readonly worker: string;
    readonly run: string;
  };
  /** Additional variables for its workers. */
  readonly environment: Readonly<Record<string, string>>;
}

type Given = { readonly [K in keyof NodeOptions["options"]]: string | undefined };

/** @throws MILLPOND_E_INVALID, MILLPOND_E_NOT_INSTALLED, MILLPOND_E_DRIVER */
export async function resolveNode(given: Given, environment: NodeJS.ProcessEnv): Promise<NodeOptions> {
  const name = given.name ?? defaultNodeName();
  const { controller } = given;
  if (controller === undefined) {
    throw millpondError("MILLPOND_E_NOT_CONFIGURED", "the agent has no controller", {
      remedy: "Join a pool with `millpond join`, or give --controller and --token-file.",
    });
  }
  const tokenFile = given.tokenFile ?? join(configDirectory, "agent.token");
  if (given.tokenFile === undefined && !existsSync(tokenFile)) {
    throw millpondError("MILLPOND_E_NOT_CONFIGURED", `the agent has no token: there is no ${tokenFile}`, {
      remedy: "Join a pool with `millpond join`, or give --token-file.",
    });
  }
  const run = given.run ?? defaultRunDirectory();
  // Needed only if worker and driver are not given: tests and `millpond up` give them.
  const native =
    given.worker === undefined || isNamed(given.driver) ? findNativeFiles(environment) : undefined;
  const drivers = await Promise.all(
    (given.driver ?? "auto").split(",").map((each) => resolveDriver(each, native)),
  );
  const isSoft = native !== undefined && drivers.includes(native.softgpu);
  return {
    options: {
      name,
      controller,
      tokenFile,
      driver: drivers.join(","),
      worker: given.worker ?? native?.worker ?? "",
      run,
    },
    environment: isSoft ? softEnvironment(environment, { name, run }) : {},
  };
}

/** The first label of the host name, as the name of a node. */
export function defaultNodeName(): string {
  const name = hostname()
    .replace(/\..*$/, "")
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    .slice(0, 63)
    .replace(/^-+|-+$/g, "");
  return name === "" ? "node" : name;
}

function defaultRunDirectory(): string {
  return process.getuid?.() === 0
    ? "/var/lib/millpond/agent"
    : join(userStateDirectory(process.env), "agent");
}

function isNamed(driver: string | undefined): boolean {
  return driver === undefined || driver.split(",").some((each) => !each.includes("/"));
}

/**
 * Returns the path of a driver library: NVIDIA's for `auto` and `libcuda.so.1`, wherever that is installed, and the software
 * GPU's for `soft`.
 *
 * @throws MILLPOND_E_DRIVER when no driver has devices
 */
export async function resolveDriver(driver: string, native: NativeFiles | undefined): Promise<string> {
  if (native === undefined || driver.includes("/")) return driver;
  if (driver === "soft") return native.softgpu;
  if (driver !== "auto" && driver !== "libcuda.so.1") {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--driver: ${quote(driver)} is neither auto nor soft nor a path with a /`,
    );
  }
  const { driver: found, rejected } = await findDriver(native);
  if (found !== undefined) return found;
  const why = rejected.map(({ path, reason }) => `${path}: ${reason}`).join("; ");
  throw millpondError(
    "MILLPOND_E_DRIVER",
    `no NVIDIA driver with a GPU is found${why === "" ? "" : ` (${why})`}`,
    {
      remedy:
        "Install NVIDIA's driver, and check it with `millpond doctor`; --driver soft offers software GPUs.",
    },
  );
}

/** Software GPUs on hosts that are copies of each other must not have the same UUIDs. */
function softEnvironment(
  environment: NodeJS.ProcessEnv,
  { name, run }: { readonly name: string; readonly run: string },
): Readonly<Record<string, string>> {
  return {
    MILLPOND_SOFTGPU_SEED: environment["MILLPOND_SOFTGPU_SEED"] ?? `${hostname()}/${name}`,
    MILLPOND_SOFTGPU_STATE: environment["MILLPOND_SOFTGPU_STATE"] ?? softState(run),
  };
}

/** Path of the state of software GPUs. Workers of a root agent run as users of their own, each with its own state. */
function softState(run: string): string {
  const folder = join(run, "softgpu");
  if (process.getuid?.() !== 0) return folder;
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  // Every user may create a folder there, and remove only its own.
  chmodSync(folder, 0o1777);
  return join(folder, "state");
}

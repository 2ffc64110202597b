// SPDX-License-Identifier: Apache-2.0
// The controller that the package runs on this host: root needs no login there.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { isLoopbackHost } from "@millpond/platform";
import type { Endpoint } from "./endpoint.ts";

export interface InstalledPaths {
  readonly config: string;
  readonly state: string;
}

/** As in the package's systemd unit. */
const packagePaths: InstalledPaths = {
  config: "/etc/millpond/controller.yaml",
  state: "/var/lib/millpond/controller",
};

const defaultListen = "127.0.0.1:7170";

/** Returns the endpoint of the installed controller; undefined: there is none, or this user may not read its token. */
export function installedController(paths: InstalledPaths = packagePaths): Endpoint | undefined {
  const text = read(paths.config);
  if (text === undefined) return undefined;
  const options = optionsOf(text);
  const state = options["state"] ?? paths.state;
  const token = read(join(state, "user.token"))?.trim();
  if (token === undefined || token === "") return undefined;
  const { host, port } = splitListen(options["listen"] ?? defaultListen);
  const isSecure = !isLoopbackHost(host) || options["tlsCert"] !== undefined;
  const reached = host === "0.0.0.0" || host === "[::]" ? "127.0.0.1" : host;
  return {
    controller: `${isSecure ? "https" : "http"}://${reached}:${port}`,
    token,
    ca: isSecure ? read(join(state, "tls", "ca.crt")) : undefined,
    source: `the controller of this host, ${paths.config}`,
  };
}

function splitListen(listen: string): { readonly host: string; readonly port: string } {
  const colon = listen.lastIndexOf(":");
  const hasPort = colon >= 0 && !listen.endsWith("]");
  return {
    host: hasPort ? listen.slice(0, colon) : listen,
    port: hasPort ? listen.slice(colon + 1) : "7170",
  };
}

function optionsOf(text: string): Readonly<Record<string, string>> {
  let value: unknown;
  try {
    value = parse(text);
  } catch {
    return {}; // The controller itself refuses such a file: `millpond config check` reports why.
  }
  if (typeof value !== "object" || value === null) return {};
  return Object.fromEntries(
    Object.entries(value).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

function read(path: string): string | undefined {
  if (!existsSync(path)) return undefined;
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined; // The user may not read the token, and is therefore not an administrator of that controller.
  }
}

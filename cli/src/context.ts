// SPDX-License-Identifier: Apache-2.0

import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { millpondError, quote } from "@millpond/api";

/** Where a pool is and how to be let in. */
export interface Context {
  readonly controller: string;
  readonly token: string;
  /** Certificate of the authority that the controller's is signed by, PEM; absent: the machine's authorities. */
  readonly ca?: string | undefined;
  /** Name of the context that was current before this one took its place; empty: none. */
  readonly previous: string;
}

/** The user's configuration file: pools by name, as in kubeconfig. */
export interface ContextFile {
  /** Empty: none. */
  readonly currentContext: string;
  readonly contexts: Readonly<Record<string, Context>>;
}

const empty: ContextFile = { currentContext: "", contexts: {} };

/** `MILLPOND_CONFIG`, else `millpond/config.json` in the user's configuration directory. */
export function contextFilePath(environment: NodeJS.ProcessEnv): string {
  const chosen = environment["MILLPOND_CONFIG"];
  if (chosen !== undefined && chosen !== "") return chosen;
  const base = environment["XDG_CONFIG_HOME"];
  return join(
    base === undefined || base === "" ? join(homedir(), ".config") : base,
    "millpond",
    "config.json",
  );
}

/**
 * Reads the file; one that is not there is an empty one.
 *
 * @throws MILLPOND_E_INVALID when it is there and cannot be understood
 */
export function readContexts(path: string): ContextFile {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return empty;
    throw unreadable(path, error);
  }
  try {
    return checkContextFile(JSON.parse(text));
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** Writes the file whole or not at all, readable by its owner only: it holds tokens. */
export function writeContexts(path: string, file: ContextFile): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${process.pid}.new`;
  const content = { apiVersion: "millpond.v1", kind: "Config", ...file };
  writeFileSync(draft, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
  renameSync(draft, path);
}

/** Adds or replaces a context and makes it the current one. */
export function enterContext(file: ContextFile, name: string, at: Omit<Context, "previous">): ContextFile {
  const previous = file.currentContext === name ? (file.contexts[name]?.previous ?? "") : file.currentContext;
  return { currentContext: name, contexts: { ...file.contexts, [name]: { ...at, previous } } };
}

/** Removes a context, and goes back to the one before it. Nothing changes when it has been replaced meanwhile. */
export function leaveContext(file: ContextFile, name: string, controller: string): ContextFile {
  const leaving = file.contexts[name];
  if (leaving === undefined || leaving.controller !== controller) return file;
  const { [name]: _removed, ...contexts } = file.contexts;
  const isKnown = Object.hasOwn(contexts, leaving.previous);
  const back = isKnown ? leaving.previous : "";
  return { currentContext: file.currentContext === name ? back : file.currentContext, contexts };
}

function unreadable(path: string, cause: unknown) {
  const why = cause instanceof Error ? cause.message : String(cause);
  return millpondError("MILLPOND_E_INVALID", `the configuration file ${quote(path)} cannot be read: ${why}`, {
    remedy: "Correct it, or remove it and run `millpond up` again.",
    cause,
  });
}

function checkContextFile(value: unknown): ContextFile {
  if (!isRecord(value) || value["kind"] !== "Config") throw new Error("it is not a Millpond configuration");
  const { currentContext, contexts } = value;
  if (typeof currentContext !== "string" || !isRecord(contexts)) {
    throw new Error("currentContext or contexts is missing");
  }
  const checked: Record<string, Context> = {};
  for (const [name, context] of Object.entries(contexts)) {
    if (!isRecord(context)) throw new Error(`the context ${name} is not an object`);
    const { controller, token, previous, ca } = context;
    if (ca !== undefined && typeof ca !== "string")
      throw new Error(`the ca of the context ${name} is no text`);
    if (typeof controller !== "string" || typeof token !== "string" || typeof previous !== "string") {
      throw new Error(`the context ${name} lacks controller, token or previous`);
    }
    checked[name] = { controller, token, previous, ...(ca === undefined ? {} : { ca }) };
  }
  return { currentContext, contexts: checked };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

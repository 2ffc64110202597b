// SPDX-License-Identifier: Apache-2.0

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { isName, millpondError, quote } from "@millpond/api";
import { makePrivateFile, makeFolders } from "@millpond/platform";

/** Address and credentials of a pool. */
export interface Context {
  readonly controller: string;
  /** Empty: none. */
  readonly token: string;
  /** Certificate of the authority that signed the controller's, PEM; absent: the machine's authorities. */
  readonly ca?: string | undefined;
  /** State directory of the `millpond up` to which this context belongs; absent: `millpond login` created it. */
  readonly state?: string | undefined;
  /** Name of the context that was current before this one; absent: there was none. */
  readonly previous?: string | undefined;
}

/** The user's configuration file: pools by name, as in kubeconfig. */
export interface ContextFile {
  /** Empty: none. */
  readonly currentContext: string;
  readonly contexts: Readonly<Record<string, Context>>;
}

const empty: ContextFile = { currentContext: "", contexts: {} };

/** How long another program may take to change the file. */
const lockPatienceMs = 5000;

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
 * Reads the file; a missing one counts as empty.
 *
 * @throws MILLPOND_E_INVALID when it exists and is not valid
 */
export function readContexts(path: string): ContextFile {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return empty;
    throw unusable(path, "read", error);
  }
  try {
    return checkContextFile(JSON.parse(text));
  } catch (error) {
    throw unusable(path, "read", error);
  }
}

/** Writes the file atomically, readable by its owner only: it holds tokens. */
export function writeContexts(path: string, file: ContextFile): void {
  makeFolders(dirname(path), 0o700);
  const draft = `${path}.${process.pid}.new`;
  const content = { apiVersion: "millpond.v1", kind: "Config", ...file };
  writeFileSync(draft, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
  renameSync(draft, path);
}

/**
 * Modifies the file, which other programs may be modifying at the same moment.
 *
 * @returns its new contents
 * @throws MILLPOND_E_INVALID when it cannot be read or written
 */
export function changeContexts(path: string, change: (file: ContextFile) => ContextFile): ContextFile {
  let lock: DatabaseSync | undefined;
  try {
    makeFolders(dirname(path), 0o700);
    // The kernel drops the lock with the process, however the process ends.
    makePrivateFile(`${path}.lock`);
    lock = new DatabaseSync(`${path}.lock`, { timeout: lockPatienceMs });
    lock.exec("BEGIN EXCLUSIVE");
    const before = readContexts(path);
    const after = change(before);
    if (after !== before) writeContexts(path, after);
    return after;
  } catch (error) {
    if (error instanceof Error && "code" in error && typeof error.code === "string") {
      throw unusable(path, "written", error);
    }
    throw error;
  } finally {
    lock?.close();
  }
}

/** Adds or replaces a context and makes it the current one. */
export function enterContext(file: ContextFile, name: string, at: Omit<Context, "previous">): ContextFile {
  const previous = file.currentContext === name ? file.contexts[name]?.previous : file.currentContext;
  const context = previous === undefined || previous === "" ? at : { ...at, previous };
  return { currentContext: name, contexts: { ...file.contexts, [name]: context } };
}

/**
 * Removes a context; if it is the current one, its predecessor becomes current again. Nothing changes if it has been replaced
 * in the meantime.
 */
export function leaveContext(file: ContextFile, name: string, controller: string): ContextFile {
  const leaving = file.contexts[name];
  if (leaving === undefined || leaving.controller !== controller) return file;
  return removeContext(file, name);
}

/** Removes a context. Contexts whose predecessor it was get its predecessor instead. */
export function removeContext(file: ContextFile, name: string): ContextFile {
  const { [name]: leaving, ...others } = file.contexts;
  const before = leaving?.previous ?? "";
  const contexts = Object.fromEntries(
    Object.entries(others).map(([each, context]): [string, Context] => {
      if (context.previous !== name) return [each, context];
      const { previous: _gone, ...rest } = context;
      return [each, before === "" || before === each ? rest : { ...rest, previous: before }];
    }),
  );
  const back = Object.hasOwn(contexts, before) ? before : "";
  return { currentContext: file.currentContext === name ? back : file.currentContext, contexts };
}

/** @throws MILLPOND_E_NOT_FOUND listing the known names */
export function requireContext(file: ContextFile, name: string): Context {
  const context = Object.hasOwn(file.contexts, name) ? file.contexts[name] : undefined;
  if (context !== undefined) return context;
  const known = Object.keys(file.contexts).join(", ");
  throw millpondError(
    "MILLPOND_E_NOT_FOUND",
    name === "" ? "no context is selected" : `there is no context ${quote(name)}`,
    { remedy: known === "" ? "`millpond login` creates one." : `There is ${known}.` },
  );
}

/**
 * The name of the context of the `millpond up` on a state directory: the previous one if it had one, else `local` for the
 * default directory and `local-<its last component>` for another, with a number appended if another pool has that name.
 */
export function localContextName(file: ContextFile, state: string, usualState: string): string {
  const own = Object.entries(file.contexts).find(([, context]) => context.state === state);
  if (own !== undefined) return own[0];
  const part = basename(state)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 40)
    .replace(/-$/, "");
  const name = state === usualState || part === "" ? "local" : `local-${part}`;
  for (let number = 1; ; number += 1) {
    const candidate = number === 1 ? name : `${name}-${number}`;
    if (!Object.hasOwn(file.contexts, candidate)) return candidate;
  }
}

function unusable(path: string, verb: "read" | "written", cause: unknown) {
  const why = cause instanceof Error ? cause.message : String(cause);
  return millpondError(
    "MILLPOND_E_INVALID",
    `the configuration file ${quote(path)} cannot be ${verb}: ${why}`,
    {
      remedy:
        verb === "read"
          ? "Correct it, or remove it and use `millpond login` or `millpond up` again. Its form is in docs/reference/configuration.md."
          : "Set MILLPOND_CONFIG to a file that can be written.",
      cause,
    },
  );
}

const contextMembers: ReadonlySet<string> = new Set(["controller", "token", "ca", "state", "previous"]);

function checkContextFile(value: unknown): ContextFile {
  if (!isRecord(value) || value["kind"] !== "Config") throw new Error("it is not a Millpond configuration");
  const { currentContext = "", contexts } = value;
  if (typeof currentContext !== "string" || !isRecord(contexts)) {
    throw new Error("currentContext is not a text, or contexts is missing");
  }
  const checked: Record<string, Context> = {};
  for (const [name, context] of Object.entries(contexts)) {
    if (!isName(name))
      throw new Error(
        `the context's name ${quote(name)} is not 1 to 63 lower-case letters, digits and hyphens`,
      );
    if (!isRecord(context)) throw new Error(`the context ${name} is not an object`);
    const unknown = Object.keys(context).find((member) => !contextMembers.has(member));
    if (unknown !== undefined) throw new Error(`the context ${name} has an unknown member ${quote(unknown)}`);
    const { controller, token = "" } = context;
    if (typeof controller !== "string") throw new Error(`the context ${name} has no controller`);
    if (typeof token !== "string") throw new Error(`the token of the context ${name} is not a text`);
    checked[name] = {
      controller,
      token,
      ...optionalText(name, context, "ca"),
      ...optionalText(name, context, "state"),
      ...optionalText(name, context, "previous"),
    };
  }
  return { currentContext, contexts: checked };
}

function optionalText<K extends "ca" | "state" | "previous">(
  name: string,
  context: Readonly<Record<string, unknown>>,
  member: K,
): { readonly [M in K]?: string } {
  const value = context[member];
  // Older versions wrote an empty string for none.
  if (value === undefined || value === "") return {};
  if (typeof value !== "string") throw new Error(`the ${member} of the context ${name} is not a text`);
  return { [member]: value } as { readonly [M in K]?: string };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

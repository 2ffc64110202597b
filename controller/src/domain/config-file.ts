// SPDX-License-Identifier: Apache-2.0

// Files of JSON that only the administrator of the controller's host writes, and the secrets beside them.

import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { isLoopbackUrl } from "@millpond/platform";

/** An object of a configuration file, whose members are checked as they are read. */
export class ConfigObject {
  readonly #members: Readonly<Record<string, unknown>>;
  /** The file, and the position in it, for errors. */
  readonly place: string;

  /** @throws MILLPOND_E_INVALID if it is not an object, or has unknown members */
  constructor(value: unknown, place: string, known: readonly string[]) {
    const remedy = `Its members are ${known.join(", ")}.`;
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw invalidConfig(place, "it is not an object", remedy);
    }
    const unknown = Object.keys(value).find((key) => !known.includes(key));
    if (unknown !== undefined) {
      throw invalidConfig(place, `it has no member ${quote(unknown)}`, remedy);
    }
    this.#members = { ...value };
    this.place = place;
  }

  get(member: string): unknown {
    return this.#members[member];
  }

  /**
   * @param otherwise Where it is left out. Default: it must be there.
   * @throws MILLPOND_E_INVALID
   */
  text(member: string, otherwise?: string): string {
    const value = this.#members[member] ?? otherwise;
    if (typeof value === "string" && (value !== "" || otherwise === "")) {
      return value;
    }
    throw this.invalid(`${member} is missing, or no text`, `Give it a ${member}.`);
  }

  /**
   * An address without user and password, which is encrypted or of this host.
   *
   * @throws MILLPOND_E_INVALID
   */
  url(member: string): URL {
    const text = this.text(member);
    const url = URL.canParse(text) ? new URL(text) : undefined;
    if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:")) {
      throw this.invalid(`${member} ${quote(text)} is not an address`, "Write https://host/path.");
    }
    if (url.username !== "" || url.password !== "") {
      throw this.invalid(`${member} has a user or a password`, "Omit them: the secret is read from a file.");
    }
    if (url.protocol === "http:" && !isLoopbackUrl(url)) {
      throw this.invalid(`${member} ${quote(text)} is not encrypted, and not of this host`, "Use https://.");
    }
    return url;
  }

  /**
   * The content of the file that a member names, relative to the configuration.
   *
   * @param least Characters that it must have.
   * @throws MILLPOND_E_INVALID
   */
  secret(member: string, { config, least }: { readonly config: string; readonly least: number }): string {
    const path = resolve(dirname(config), this.text(member));
    let secret: string;
    try {
      secret = readFileSync(path, "utf8").trim();
    } catch (cause) {
      throw this.invalid(
        `the secret cannot be read: ${messageOf(cause)}`,
        "Name a file that the controller may read.",
      );
    }
    if (secret.length < least) {
      throw this.invalid(
        `the secret in ${path} has ${secret.length} characters`,
        `Write at least ${least} there.`,
      );
    }
    return secret;
  }

  invalid(why: string, remedy: string): Error {
    return invalidConfig(this.place, why, remedy);
  }
}

/**
 * @param docs The page that describes the file.
 * @throws MILLPOND_E_INVALID
 */
export function readConfigFile(path: string, docs: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    throw invalidConfig(path, `it cannot be read: ${messageOf(cause)}`, `See ${docs} for its form.`);
  }
}

export function invalidConfig(place: string, why: string, remedy: string): Error {
  return millpondError("MILLPOND_E_INVALID", `${place}: ${why}`, { remedy });
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

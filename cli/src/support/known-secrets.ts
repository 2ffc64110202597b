// SPDX-License-Identifier: Apache-2.0
// The secrets that this user can read on this host. A support bundle is searched for them before it is written.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { tokenFileName, poolKeyFile } from "@millpond/controller";
import { contextFilePath, readContexts } from "../connection/context.ts";

/** Larger files hold no secret of Millpond. */
const mostBytes = 1 << 20;

/** Members of JSON files that are secrets, or that name files with secrets, by the end of their name. */
const secretMember = /(?:secret|token|password|key)(file)?$/i;

export interface SecretPlaces {
  readonly environment: NodeJS.ProcessEnv;
  /** State directories of controllers, and run directories of agents. */
  readonly directories: readonly string[];
  /** Files that hold one secret. */
  readonly secretFiles: readonly string[];
  /** Files of webhooks and of an OpenID provider, JSON. */
  readonly jsonFiles: readonly string[];
  /** URLs that may hold a password. */
  readonly urls: readonly string[];
}

export function knownSecrets(places: SecretPlaces): ReadonlySet<string> {
  const { environment } = places;
  const secrets = new Set<string>();
  for (const [name, value = ""] of Object.entries(environment)) {
    if (!/TOKEN|SECRET|PASSWORD|TICKET|_KEY$|CREDENTIAL/i.test(name)) continue;
    for (const each of [value, ...value.split(",")]) secrets.add(each);
  }
  for (const url of [...places.urls, environment["MILLPOND_STORE"] ?? ""]) {
    for (const each of passwordsOf(url)) secrets.add(each);
  }
  for (const context of Object.values(contexts(environment))) secrets.add(context.token);
  const files = [
    ...places.secretFiles,
    ...places.directories.flatMap((directory) => [
      join(directory, tokenFileName("user")),
      join(directory, tokenFileName("agent")),
      join(directory, poolKeyFile),
      ...keysIn(directory),
      ...keysIn(join(directory, "tls")),
    ]),
  ];
  for (const file of files) addFile(secrets, file);
  for (const file of places.jsonFiles) addJson(secrets, file);
  secrets.delete("");
  return secrets;
}

function contexts(environment: NodeJS.ProcessEnv) {
  try {
    return readContexts(contextFilePath(environment)).contexts;
  } catch {
    return {}; // A file that cannot be read discloses nothing: `doctor` reports it.
  }
}

function passwordsOf(url: string): readonly string[] {
  const [, password = ""] = /^[a-z]+:\/\/[^:@/]*:([^@/]*)@/i.exec(url) ?? [];
  try {
    return [password, decodeURIComponent(password)];
  } catch {
    return [password];
  }
}

function keysIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory)
      .filter((name) => name.endsWith(".key"))
      .map((name) => join(directory, name));
  } catch {
    return []; // Missing, or unreadable for this user: then its contents cannot be in the bundle either.
  }
}

function read(file: string): string {
  try {
    return statSync(file).size > mostBytes ? "" : readFileSync(file, "utf8");
  } catch {
    return ""; // The same.
  }
}

/** A file with a secret or a key: each of its lines counts as a secret, too. */
function addFile(secrets: Set<string>, file: string): void {
  const text = read(file);
  secrets.add(text.trim());
  for (const line of text.split("\n")) {
    if (!line.startsWith("-----")) secrets.add(line.trim());
  }
}

function addJson(secrets: Set<string>, file: string): void {
  let value: unknown;
  try {
    value = JSON.parse(read(file));
  } catch {
    return; // The controller refuses such a file.
  }
  visit(value, (key, text) => {
    if (/^url$/i.test(key)) secrets.add(text);
    const [match, isFile] = secretMember.exec(key) ?? [];
    if (match === undefined) return;
    if (isFile === undefined) secrets.add(text);
    else addFile(secrets, resolve(dirname(file), text));
  });
}

function visit(value: unknown, onText: (key: string, text: string) => void): void {
  if (typeof value !== "object" || value === null) return;
  for (const [key, member] of Object.entries(value)) {
    if (typeof member === "string") onText(key, member);
    else visit(member, onText);
  }
}

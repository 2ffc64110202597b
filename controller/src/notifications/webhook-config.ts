// SPDX-License-Identifier: Apache-2.0

// The file that names the receivers of events. Only the administrator of the controller's host writes it: with an address in
// the API, its callers could make the controller call services inside of the network.

import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { isLoopbackUrl } from "@millpond/platform";

/** The format for a receiver: an object with the event's members, or one with a line of text, for chats. */
export const webhookFormats = ["event", "text"] as const;

export interface WebhookConfig {
  /** Unique. */
  readonly name: string;
  readonly url: string;
  /** Signs the requests; empty: they are not signed. */
  readonly secret: string;
  /** Kinds of events, such as `NodeNotReady`, or their beginnings, such as `Claim*`; empty: all. */
  readonly events: readonly string[];
  /** Only events of claims of these tenants; empty: all events. */
  readonly tenants: readonly string[];
  readonly format: (typeof webhookFormats)[number];
}

const mostWebhooks = 32;
const leastSecretLength = 16;
const nameForm = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const eventForm = /^(?:[A-Z][A-Za-z]{0,62}\*?|\*)$/;

/** @throws MILLPOND_E_INVALID naming the file and the member */
export function readWebhooks(path: string): WebhookConfig[] {
  const list = parseFile(path);
  if (!Array.isArray(list)) {
    throw invalid(path, "it is not a list", "Write [{...}], one object for each receiver.");
  }
  if (list.length > mostWebhooks) {
    throw invalid(path, `it has ${list.length} receivers`, `There may be ${mostWebhooks}.`);
  }
  const configs = list.map((each: unknown, index) => readWebhook(each, { path, index }));
  const twice = configs.find(({ name }, index) => configs.findIndex((each) => each.name === name) < index);
  if (twice !== undefined) {
    throw invalid(path, `two receivers have the name ${quote(twice.name)}`, "Give each a name of its own.");
  }
  return configs;
}

function parseFile(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw invalid(path, `it cannot be read: ${why}`, "See docs/notifications.md for its form.");
  }
}

const members = ["name", "url", "secretFile", "events", "tenants", "format"] as const;

function readWebhook(
  value: unknown,
  { path, index }: { readonly path: string; readonly index: number },
): WebhookConfig {
  const place = `${path}: receiver ${index + 1}`;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid(place, "it is not an object", `Its members are ${members.join(", ")}.`);
  }
  const given: Readonly<Record<string, unknown>> = { ...value };
  const unknown = Object.keys(given).find((key) => !members.some((member) => member === key));
  if (unknown !== undefined) {
    throw invalid(place, `it has no member ${quote(unknown)}`, `Its members are ${members.join(", ")}.`);
  }
  const name = textOf(given, "name", place);
  if (!nameForm.test(name)) {
    throw invalid(
      place,
      `the name ${quote(name)} is not of a to z, 0 to 9 and -`,
      "Name it, such as `alerts`.",
    );
  }
  const format = given["format"] ?? "event";
  const known = webhookFormats.find((each) => each === format);
  if (known === undefined) {
    throw invalid(
      place,
      `the format ${JSON.stringify(format)} is unknown`,
      `Use ${webhookFormats.join(" or ")}.`,
    );
  }
  const events = listOf(given, "events", place);
  const bad = events.find((each) => !eventForm.test(each));
  if (bad !== undefined) {
    throw invalid(
      place,
      `${quote(bad)} is no kind of event`,
      "Write `NodeNotReady`, or `Claim*` for all that begin so.",
    );
  }
  const secretFile = given["secretFile"] === undefined ? undefined : textOf(given, "secretFile", place);
  return {
    name,
    url: checkUrl(textOf(given, "url", place), place),
    secret: secretFile === undefined ? "" : readSecret(resolve(dirname(path), secretFile), place),
    events,
    tenants: listOf(given, "tenants", place),
    format: known,
  };
}

function textOf(given: Readonly<Record<string, unknown>>, member: string, place: string): string {
  const value = given[member];
  if (typeof value === "string" && value !== "") return value;
  throw invalid(place, `${member} is missing, or no text`, `Give it a ${member}.`);
}

function listOf(given: Readonly<Record<string, unknown>>, member: string, place: string): string[] {
  const value = given[member] ?? [];
  const isTexts = Array.isArray(value) && value.every((each) => typeof each === "string");
  if (isTexts) return value.map(String);
  throw invalid(place, `${member} is not a list of texts`, "Write [] or leave it out for all.");
}

/** Without encryption only to this host. */
function checkUrl(text: string, place: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw invalid(place, `the url ${quote(text)} is none`, "Write https://host/path.");
  }
  if (url.username !== "" || url.password !== "") {
    throw invalid(place, "the url has a user or a password", "Leave them out; a secret signs what is sent.");
  }
  if (url.protocol === "http:" && !isLoopbackUrl(url)) {
    throw invalid(place, `the url ${quote(text)} is not encrypted, and not of this host`, "Use https://.");
  }
  return url.href;
}

function readSecret(path: string, place: string): string {
  let secret: string;
  try {
    secret = readFileSync(path, "utf8").trim();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw invalid(place, `the secret cannot be read: ${why}`, "Name a file that the controller may read.");
  }
  if (secret.length < leastSecretLength) {
    throw invalid(place, `the secret has ${secret.length} characters`, `Take at least ${leastSecretLength}.`);
  }
  return secret;
}

function invalid(place: string, why: string, remedy: string) {
  return millpondError("MILLPOND_E_INVALID", `${place}: ${why}`, { remedy });
}

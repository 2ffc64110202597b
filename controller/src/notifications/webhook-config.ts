// SPDX-License-Identifier: Apache-2.0

// The file that names the receivers of events. Only the administrator of the controller's host writes it: with an address in
// the API, its callers could make the controller call services inside of the network.

import { quote } from "@millpond/api";
import { ConfigObject, invalidConfig, readConfigFile } from "../domain/config-file.ts";

/** The request body for a receiver: an object with the event's members, or one with a line of text, for chats. */
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
  const list = readConfigFile(path, "docs/notifications.md");
  if (!Array.isArray(list)) {
    throw invalidConfig(path, "it is not a list", "Write [{...}], one object for each receiver.");
  }
  if (list.length > mostWebhooks) {
    throw invalidConfig(path, `it has ${list.length} receivers`, `There may be ${mostWebhooks}.`);
  }
  const configs = list.map((each: unknown, index) => readWebhook(each, { path, index }));
  const twice = configs.find(({ name }, index) => configs.findIndex((each) => each.name === name) < index);
  if (twice !== undefined) {
    throw invalidConfig(
      path,
      `two receivers have the name ${quote(twice.name)}`,
      "Give each a name of its own.",
    );
  }
  return configs;
}

const members = ["name", "url", "secretFile", "events", "tenants", "format"] as const;

function readWebhook(
  value: unknown,
  { path, index }: { readonly path: string; readonly index: number },
): WebhookConfig {
  const given = new ConfigObject(value, `${path}: receiver ${index + 1}`, members);
  const name = given.text("name");
  if (!nameForm.test(name)) {
    throw given.invalid(
      `the name ${quote(name)} is not of a to z, 0 to 9 and -`,
      "Name it, such as `alerts`.",
    );
  }
  const format = given.get("format") ?? "event";
  const known = webhookFormats.find((each) => each === format);
  if (known === undefined) {
    throw given.invalid(
      `the format ${JSON.stringify(format)} is unknown`,
      `Use ${webhookFormats.join(" or ")}.`,
    );
  }
  const events = listOf(given, "events");
  const bad = events.find((each) => !eventForm.test(each));
  if (bad !== undefined) {
    throw given.invalid(
      `${quote(bad)} is not a kind of event`,
      "Write `NodeNotReady`, or `Claim*` for all that begin so.",
    );
  }
  return {
    name,
    url: given.url("url").href,
    secret:
      given.get("secretFile") === undefined
        ? ""
        : given.secret("secretFile", { config: path, least: leastSecretLength }),
    events,
    tenants: listOf(given, "tenants"),
    format: known,
  };
}

function listOf(given: ConfigObject, member: string): string[] {
  const value = given.get(member) ?? [];
  const isTexts = Array.isArray(value) && value.every((each) => typeof each === "string");
  if (isTexts) return value.map(String);
  throw given.invalid(`${member} is not a list of strings`, "Write [] or omit it for all.");
}

// SPDX-License-Identifier: Apache-2.0

// The file that names the OpenID provider of the console, and the roles of its groups. Only the administrator of the
// controller's host writes it: a method that did would let its callers choose their own role.

import { hash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { isName, millpondError, quote } from "@millpond/api";
import { isLoopbackUrl } from "@millpond/platform";

/** Gives the members of a group a role. */
export interface OidcRule {
  /** Changes with the rule and its provider, so that logins by an earlier rule end. */
  readonly id: string;
  /** `*`: all users of the provider. */
  readonly group: string;
  readonly role: (typeof oidcRoles)[number];
  /** Empty for administrators, and only for them. */
  readonly tenant: string;
}

export interface OidcConfig {
  readonly issuer: URL;
  readonly clientId: string;
  /** Empty: a public client, which has PKCE alone. */
  readonly clientSecret: string;
  /** Base address of the console as browsers have it; empty: that of the controller. */
  readonly url: string;
  /** Name of the provider for the login page. */
  readonly label: string;
  readonly scopes: readonly string[];
  /** The claim of the ID token that names a user in the audit. */
  readonly nameClaim: string;
  /** The claim with the groups: a list of texts, or a text. */
  readonly groupsClaim: string;
  /** The first that fits decides. */
  readonly rules: readonly OidcRule[];
  /** By how much the clocks of provider and controller may differ. */
  readonly clockToleranceSeconds: number;
}

export const oidcRoles = ["user", "tenant-admin", "admin"] as const;

const mostRules = 1000;
const mostToleranceSeconds = 300;

const members = [
  "issuer",
  "clientId",
  "clientSecretFile",
  "url",
  "label",
  "scopes",
  "nameClaim",
  "groupsClaim",
  "rules",
  "clockToleranceSeconds",
] as const;
const ruleMembers = ["group", "role", "tenant"] as const;

/** @throws MILLPOND_E_INVALID naming the file and the member */
export function readOidcConfig(path: string): OidcConfig {
  const given = asObject(parseFile(path), path, members);
  const issuer = checkUrl(textOf(given, "issuer", path), "issuer", path);
  const rules = given["rules"];
  if (!Array.isArray(rules) || rules.length === 0 || rules.length > mostRules) {
    throw invalid(
      path,
      `rules is not a list of 1 to ${mostRules} rules`,
      'Write [{"group": "gpu-admins", "role": "admin"}].',
    );
  }
  const secretFile = textOf(given, "clientSecretFile", path, "");
  const url = textOf(given, "url", path, "");
  const tolerance = given["clockToleranceSeconds"] ?? 30;
  if (typeof tolerance !== "number" || !(tolerance >= 0 && tolerance <= mostToleranceSeconds)) {
    throw invalid(
      path,
      `clockToleranceSeconds is not within 0 and ${mostToleranceSeconds}`,
      "Set the clocks by NTP.",
    );
  }
  const scopes = textOf(given, "scopes", path, "openid profile").split(" ");
  if (!scopes.includes("openid")) {
    throw invalid(path, "scopes lacks openid", 'Write "openid profile groups", as the provider has them.');
  }
  return {
    issuer,
    clientId: textOf(given, "clientId", path),
    clientSecret: secretFile === "" ? "" : readSecret(resolve(dirname(path), secretFile), path),
    url: url === "" ? "" : checkUrl(url, "url", path).href.replace(/\/+$/, ""),
    label: textOf(given, "label", path, issuer.hostname),
    scopes,
    nameClaim: textOf(given, "nameClaim", path, "sub"),
    groupsClaim: textOf(given, "groupsClaim", path, "groups"),
    rules: rules.map((each: unknown, index) => readRule(each, issuer, `${path}: rule ${index + 1}`)),
    clockToleranceSeconds: tolerance,
  };
}

function parseFile(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw invalid(path, `it cannot be read: ${why}`, "See docs/oidc.md for its form.");
  }
}

function readRule(value: unknown, issuer: URL, place: string): OidcRule {
  const given = asObject(value, place, ruleMembers);
  const group = textOf(given, "group", place);
  const asked = textOf(given, "role", place);
  const role = oidcRoles.find((each) => each === asked);
  if (role === undefined) {
    throw invalid(place, `the role ${quote(asked)} is unknown`, `Use one of ${oidcRoles.join(", ")}.`);
  }
  const tenant = textOf(given, "tenant", place, "");
  if (role === "admin" ? tenant !== "" : !isName(tenant)) {
    throw invalid(
      place,
      tenant === "" ? `the role ${role} needs a tenant` : `the role ${role} and the tenant ${quote(tenant)}`,
      "Administrators have no tenant, all others have one.",
    );
  }
  const said = JSON.stringify([issuer.href, group, role, tenant]);
  return { id: hash("sha256", said, "buffer").subarray(0, 8).toString("base64url"), group, role, tenant };
}

function asObject(
  value: unknown,
  place: string,
  known: readonly string[],
): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid(place, "it is not an object", `Its members are ${known.join(", ")}.`);
  }
  const unknown = Object.keys(value).find((key) => !known.includes(key));
  if (unknown !== undefined) {
    throw invalid(place, `it has no member ${quote(unknown)}`, `Its members are ${known.join(", ")}.`);
  }
  return { ...value };
}

function textOf(
  given: Readonly<Record<string, unknown>>,
  member: string,
  place: string,
  otherwise?: string,
): string {
  const value = given[member] ?? otherwise;
  if (typeof value === "string" && (value !== "" || otherwise === "")) {
    return value;
  }
  throw invalid(place, `${member} is missing, or no text`, `Give it a ${member}.`);
}

/** Without encryption only on this host. */
function checkUrl(text: string, member: string, place: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain = url?.search === "" && url.hash === "" && url.username === "" && url.password === "";
  if (url === undefined || !isPlain || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw invalid(place, `${member} ${quote(text)} is no address`, "Write https://host/path.");
  }
  if (url.protocol === "http:" && !isLoopbackUrl(url)) {
    throw invalid(place, `${member} ${quote(text)} is not encrypted, and not of this host`, "Use https://.");
  }
  return url;
}

function readSecret(path: string, place: string): string {
  try {
    const secret = readFileSync(path, "utf8").trim();
    if (secret !== "") {
      return secret;
    }
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw invalid(place, `the secret cannot be read: ${why}`, "Name a file that the controller may read.");
  }
  throw invalid(place, `the secret in ${path} is empty`, "Write the client's secret there.");
}

function invalid(place: string, why: string, remedy: string) {
  return millpondError("MILLPOND_E_INVALID", `${place}: ${why}`, { remedy });
}

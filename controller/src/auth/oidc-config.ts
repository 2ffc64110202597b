// SPDX-License-Identifier: Apache-2.0

// The file that names the OpenID provider of the console, and the roles of its groups. Only the administrator of the
// controller's host writes it: a method that did would let its callers choose their own role.

import { hash } from "node:crypto";
import { isName, quote } from "@millpond/api";
import { ConfigObject, readConfigFile } from "../domain/config-file.ts";

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
  const given = new ConfigObject(readConfigFile(path, "docs/oidc.md"), path, members);
  const issuer = plainUrl(given, "issuer");
  const rules = given.get("rules");
  if (!Array.isArray(rules) || rules.length === 0 || rules.length > mostRules) {
    throw given.invalid(
      `rules is not a list of 1 to ${mostRules} rules`,
      'Write [{"group": "gpu-admins", "role": "admin"}].',
    );
  }
  const tolerance = given.get("clockToleranceSeconds") ?? 30;
  if (typeof tolerance !== "number" || !(tolerance >= 0 && tolerance <= mostToleranceSeconds)) {
    throw given.invalid(
      `clockToleranceSeconds is not between 0 and ${mostToleranceSeconds}`,
      "Set the clocks by NTP.",
    );
  }
  const scopes = given.text("scopes", "openid profile").split(" ");
  if (!scopes.includes("openid")) {
    throw given.invalid("scopes lacks openid", 'Write "openid profile groups", as the provider has them.');
  }
  return {
    issuer,
    clientId: given.text("clientId"),
    clientSecret:
      given.text("clientSecretFile", "") === ""
        ? ""
        : given.secret("clientSecretFile", { config: path, least: 1 }),
    url: given.text("url", "") === "" ? "" : plainUrl(given, "url").href.replace(/\/+$/, ""),
    label: given.text("label", issuer.hostname),
    scopes,
    nameClaim: given.text("nameClaim", "sub"),
    groupsClaim: given.text("groupsClaim", "groups"),
    rules: rules.map((each: unknown, index) => readRule(each, issuer, `${path}: rule ${index + 1}`)),
    clockToleranceSeconds: tolerance,
  };
}

function readRule(value: unknown, issuer: URL, place: string): OidcRule {
  const given = new ConfigObject(value, place, ruleMembers);
  const group = given.text("group");
  const asked = given.text("role");
  const role = oidcRoles.find((each) => each === asked);
  if (role === undefined) {
    throw given.invalid(`the role ${quote(asked)} is unknown`, `Use one of ${oidcRoles.join(", ")}.`);
  }
  const tenant = given.text("tenant", "");
  if (role === "admin" ? tenant !== "" : !isName(tenant)) {
    throw given.invalid(
      tenant === "" ? `the role ${role} needs a tenant` : `the role ${role} and the tenant ${quote(tenant)}`,
      "Administrators have no tenant, all others have one.",
    );
  }
  const said = JSON.stringify([issuer.href, group, role, tenant]);
  return { id: hash("sha256", said, "buffer").subarray(0, 8).toString("base64url"), group, role, tenant };
}

/** A base address, to which paths are appended. */
function plainUrl(given: ConfigObject, member: string): URL {
  const url = given.url(member);
  if (url.search !== "" || url.hash !== "") {
    throw given.invalid(`${member} ${quote(url.href)} is not an address`, "Write https://host/path.");
  }
  return url;
}

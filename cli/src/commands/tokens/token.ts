// SPDX-License-Identifier: Apache-2.0

import { X509Certificate } from "node:crypto";
import { hostname } from "node:os";
import { millpondError } from "@millpond/api";
import { fingerprintOf } from "../../connection/authority.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { tokenKind } from "../../output/kinds.ts";
import { renderObject, tokenToJson } from "../../output/resources.ts";
import { layOut } from "../../output/table.ts";

export async function run(
  values: Values<"token">,
  [action = "", name = ""]: readonly string[],
): Promise<number> {
  const connection = openConnection(values);
  const isJson = values.output === "json";
  if (action === "list") {
    const tokens = await tokenKind.list(connection, { all: false, after: 0n });
    const columns = tokenKind.columns({ nowSeconds: Math.floor(Date.now() / 1000), isWide: false });
    const text = isJson
      ? renderObject("TokenList", { items: tokens.map(tokenToJson) })
      : `${layOut(columns, tokens, { headers: true, widths: undefined }).lines.join("\n")}\n`;
    process.stdout.write(text);
    return exitStatus.ok;
  }
  if (name === "") {
    throw millpondError("MILLPOND_E_INVALID", `\`millpond token ${action}\` needs the name of a token`);
  }
  if (action === "revoke") {
    await connection.access.revokeToken({ name });
    process.stdout.write(`token/${name} revoked\n`);
    return exitStatus.ok;
  }
  const { token, secret } = await connection.access.createToken({
    name,
    role: values.role ?? "user",
    tenant: values.tenant ?? "",
    node: values.node ?? "",
    lifetimeSeconds: BigInt(values.expires ?? 0),
  });
  if (token === undefined) {
    throw millpondError("MILLPOND_E_VERSION", "the controller answered without the token that it made");
  }
  // Only the secret is written to standard output, so that a script can store the output as it is.
  if (isJson) {
    process.stdout.write(renderObject("Token", { ...tokenToJson(token), secret }));
  } else {
    const of = token.tenant === "" ? "" : ` of the tenant ${token.tenant}`;
    process.stderr.write(`token/${name} created, role ${token.role}${of}; it is shown this once:\n`);
    process.stdout.write(`${secret}\n`);
    process.stderr.write(nextStep(token.role, connection));
  }
  return exitStatus.ok;
}

/** Returns the command that uses the new token. It does not contain the token: other users can read command lines. */
function nextStep(role: string, { controller, ca }: Connection): string {
  const trust = ca === undefined ? "" : ` --fingerprint ${fingerprintOf(new X509Certificate(ca))}`;
  const command = role === "agent" ? "join" : "login";
  const where = role === "agent" ? "on the new host, with root's rights" : "on the machine of its user";
  return `then, ${where} (the token is asked for):\n  millpond ${command} ${fromElsewhere(controller)}${trust}\n`;
}

/** The address with this host's name where it is one of this host alone: its certificate has that name, too. */
function fromElsewhere(controller: string): string {
  return controller.replace(
    /^https:\/\/(?:127(?:\.\d+){3}|localhost|\[::1\])(?=[:/]|$)/,
    `https://${hostname()}`,
  );
}

// SPDX-License-Identifier: Apache-2.0

import { formatTime, millpondError } from "@millpond/api";
import { splitAddresses } from "@millpond/platform";
import { findAuthority } from "../../connection/authority.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { checkUrls, connect } from "../../connection/connection.ts";
import { changeContexts, contextFilePath, enterContext } from "../../connection/context.ts";
import { logInByProvider, type OidcLogin } from "../../connection/oidc-login.ts";
import { readTokenInput } from "../../command-line/token-input.ts";

/** `millpond login`: writes nothing before the controller has accepted the token. */
export async function run(values: Values<"login">, [address = ""]: readonly string[]): Promise<number> {
  const controller = checkUrls(address, "the controller");
  if (values.oidc && values.tokenFile !== undefined) {
    throw millpondError("MILLPOND_E_INVALID", "--oidc and --token-file are both given");
  }
  const ca = await findAuthority(controller, values);
  const login = values.oidc
    ? await logInByProvider({ controller, ca, opensBrowser: values.browser })
    : undefined;
  const token = login?.token ?? (await readTokenInput(values));
  const { queues } = connect({ controller, token, ca, source: "the command line" });
  await queues.listQueues({});
  const path = contextFilePath(process.env);
  const name = values.name ?? nameFor(controller);
  changeContexts(path, (file) =>
    enterContext(file, name, { controller, token, ...(ca === undefined ? {} : { ca }) }),
  );
  process.stdout.write(
    `logged in to ${controller}${login === undefined ? "" : describe(login)}; the current context is ${name} (${path})\n`,
  );
  return exitStatus.ok;
}

function describe({ name, role, tenant, expiresAt }: OidcLogin): string {
  const rights = tenant === "" ? role : `${role} of ${tenant}`;
  return ` as ${name} (${rights}) until ${formatTime(expiresAt)}`;
}

/** The first label of a host name; an address is used whole. */
function nameFor(controller: string): string {
  const { hostname } = new URL(splitAddresses(controller)[0] ?? "");
  const host = /^[\d.]+$|^\[/.test(hostname) ? hostname : hostname.replace(/\..*$/, "");
  const name = host
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, 63)
    .replace(/^-+|-+$/g, "");
  return name === "" ? "pool" : name;
}

// SPDX-License-Identifier: Apache-2.0

import { errorCodeOf, formatTime, millpondError } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { errorParts } from "../../command-line/errors.ts";
import { connect, openConnection } from "../../connection/connection.ts";
import {
  changeContexts,
  type Context,
  contextFilePath,
  readContexts,
  removeContext,
  requireContext,
} from "../../connection/context.ts";

const patienceMs = 5000;

export async function run(values: Values<"logout">, [asked]: readonly string[]): Promise<number> {
  if (values.id !== undefined) return await endLogin(values, values.id, asked);
  const path = contextFilePath(process.env);
  const name = asked ?? readContexts(path).currentContext;
  const context = requireContext(readContexts(path), name);
  // This comes first, because the token is gone afterwards.
  await endOwnLogin(context);
  const { currentContext } = changeContexts(path, (file) => removeContext(file, name));
  const rest = currentContext === "" ? "" : `; the current context is ${currentContext}`;
  process.stdout.write(`logged out of ${name}${rest}\n`);
  return exitStatus.ok;
}

async function endLogin(values: Values<"logout">, id: string, asked: string | undefined): Promise<number> {
  if (asked !== undefined) {
    throw millpondError("MILLPOND_E_INVALID", "a context and --id are both given");
  }
  const { login } = await openConnection(values).access.revokeLogin({ id });
  process.stdout.write(`login/${id}${login === undefined ? "" : ` of ${login.who}`} ended\n`);
  return exitStatus.ok;
}

/** Ends the login by an OpenID provider whose token a context holds. The context is removed even if that fails. */
async function endOwnLogin({ controller, token, ca }: Context): Promise<void> {
  if (!token.startsWith("mp-oidc-")) return;
  const { access } = connect({ controller, token, ca, source: "the context" });
  let until = "";
  try {
    const { expiresAt } = await access.getCaller({}, { timeoutMs: patienceMs });
    until = ` until ${formatTime(expiresAt)}`;
    await access.revokeLogin({}, { timeoutMs: patienceMs });
  } catch (error) {
    // The login has already ended.
    if (errorCodeOf(error) === "MILLPOND_E_UNAUTHENTICATED") return;
    process.stderr.write(
      `millpond: the login could not be ended at the controller and stays valid${until}: ${errorParts(error).what}\n`,
    );
  }
}

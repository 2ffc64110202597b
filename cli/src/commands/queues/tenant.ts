// SPDX-License-Identifier: Apache-2.0

import { create } from "@bufbuild/protobuf";
import { millpondError, type Tenant, UserLimitsSchema } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";

export async function run(
  values: Values<"tenant">,
  [action = "", name = ""]: readonly string[],
): Promise<number> {
  const { queues } = openConnection(values);
  if (action === "delete") {
    await queues.deleteTenant({ name });
    process.stdout.write(`tenant/${name} deleted\n`);
    return exitStatus.ok;
  }
  const isNew = action === "create";
  const before = isNew
    ? undefined
    : (await queues.listTenants({})).tenants.find((tenant) => tenant.name === name);
  const userLimits = changedLimits(values, before);
  await queues.putTenant({
    tenant: {
      name,
      limit: values.limit ?? before?.limit ?? {},
      ...(userLimits === undefined ? {} : { userLimits }),
    },
    createOnly: isNew,
    changeOnly: !isNew,
  });
  process.stdout.write(`tenant/${name} ${isNew ? "created" : "changed"}\n`);
  return exitStatus.ok;
}

/** Undefined: no user's limit changes. */
function changedLimits(
  { user, userLimit, forgetUser }: Values<"tenant">,
  before: Tenant | undefined,
): Tenant["userLimits"] | undefined {
  if (user !== undefined && userLimit === undefined) {
    throw millpondError("MILLPOND_E_INVALID", `--user ${user} is given without --user-limit`, {
      remedy: "Give both, or remove its own limit with --forget-user.",
    });
  }
  if (userLimit === undefined && forgetUser === undefined) return undefined;
  const limits = before?.userLimits;
  const users = limits?.users ?? [];
  if (forgetUser !== undefined && !users.some((own) => own.user === forgetUser)) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `the user ${forgetUser} has no own limit`, {
      remedy: "List them with `millpond describe tenant NAME`.",
    });
  }
  const kept = users.filter((own) => own.user !== forgetUser && own.user !== user);
  const own = user === undefined || userLimit === undefined ? [] : [{ user, limit: userLimit }];
  const each = user === undefined && userLimit !== undefined ? userLimit : limits?.each;
  return create(UserLimitsSchema, { ...(each === undefined ? {} : { each }), users: [...kept, ...own] });
}

// SPDX-License-Identifier: Apache-2.0

import { millpondError, parseBorrowing } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import { warnOfGuarantees } from "../../claim/guarantees.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";

export async function run(
  values: Values<"queue">,
  [action = "", name = ""]: readonly string[],
): Promise<number> {
  const connection = openConnection(values);
  const { queues } = connection;
  if (action === "delete") {
    await queues.deleteQueue({ name });
    process.stdout.write(`queue/${name} deleted\n`);
    return exitStatus.ok;
  }
  const isNew = action === "create";
  const before = isNew
    ? undefined
    : (await queues.listQueues({})).queues.find((queue) => queue.name === name);
  if (!isNew && before === undefined) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `there is no queue ${name}`, {
      remedy: "List them with `millpond get queues`.",
    });
  }
  await queues.putQueue({
    queue: {
      name,
      parent: values.parent === "none" ? "" : (values.parent ?? before?.parent ?? ""),
      weight: values.weight ?? before?.weight ?? 1,
      borrowing: values.borrowing === undefined ? (before?.borrowing ?? 0) : parseBorrowing(values.borrowing),
      guaranteed: values.guaranteed ?? before?.guaranteed ?? {},
      limit: values.limit ?? before?.limit ?? {},
    },
    createOnly: isNew,
    changeOnly: !isNew,
  });
  process.stdout.write(`queue/${name} ${isNew ? "created" : "changed"}\n`);
  await warnOfGuarantees(connection, values.guaranteed);
  return exitStatus.ok;
}

// SPDX-License-Identifier: Apache-2.0

import { millpondError, type SigningKey } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { renderObject } from "../../output/resources.ts";
import { type Column, layOut } from "../../output/table.ts";

/** `millpond key`. */
export async function run(values: Values<"key">, [action = ""]: readonly string[]): Promise<number> {
  const { access } = openConnection(values);
  const isJson = values.output === "json";
  if (action === "list") {
    const { keys } = await access.listKeys({});
    const items = keys.map(keyToJson);
    process.stdout.write(
      isJson
        ? renderObject("SigningKeyList", { items })
        : `${layOut(columns, items, { headers: true, widths: undefined }).lines.join("\n")}\n`,
    );
    return exitStatus.ok;
  }
  const { key } = await access.rotateKey({ revoke: values.revoke ?? false });
  if (key === undefined) {
    throw millpondError("MILLPOND_E_VERSION", "the controller answered without the key that it made");
  }
  process.stdout.write(
    isJson ? renderObject("SigningKey", keyToJson(key)) : `tickets are signed with the new key ${key.id}\n`,
  );
  return exitStatus.ok;
}

type KeyRow = ReturnType<typeof keyToJson>;

function keyToJson({ id, createdAt, retiresAt, revoked, derives, publicKey }: SigningKey) {
  const isOver = retiresAt !== 0n && Number(retiresAt) * 1000 <= Date.now();
  const state = revoked ? "revoked" : retiresAt === 0n ? "current" : isOver ? "retired" : "retiring";
  return {
    id,
    state,
    createdAt: isoTime(createdAt),
    ...(retiresAt === 0n ? {} : { retiresAt: isoTime(retiresAt) }),
    tokensAreValid: derives,
    publicKey,
  };
}

function isoTime(seconds: bigint): string {
  return new Date(Number(seconds) * 1000).toISOString();
}

const columns: readonly Column<KeyRow>[] = [
  { title: "KEY", cell: ({ id }) => id },
  { title: "STATE", cell: ({ state }) => state },
  { title: "CREATED", cell: ({ createdAt }) => createdAt },
  { title: "TICKETS UNTIL", cell: ({ retiresAt }) => retiresAt ?? "" },
  { title: "TOKENS", cell: ({ tokensAreValid }) => (tokensAreValid ? "valid" : "refused") },
];

// SPDX-License-Identifier: Apache-2.0

import { AuditChain } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { renderObject } from "../../output/resources.ts";

/** The most records in an answer. */
const pageSize = 1000;

/** `millpond audit verify`. */
export async function run(values: Values<"audit">): Promise<number> {
  const { chain, problems } = await verify(openConnection(values), values.includes);
  const { records, unchained, last } = chain;
  const text =
    values.output === "json"
      ? renderObject("AuditVerification", {
          records,
          unchained,
          problems,
          lastId: Number(last?.id ?? 0),
          lastHash: last?.hash ?? "",
        })
      : describe(chain, problems);
  process.stdout.write(text);
  return problems.length === 0 ? exitStatus.ok : exitStatus.finding;
}

async function verify(
  { access }: Connection,
  includes: string | undefined,
): Promise<{ readonly chain: AuditChain; readonly problems: readonly string[] }> {
  const chain = new AuditChain();
  const problems: string[] = [];
  let isIncluded = includes === undefined;
  // 0 requests the newest records, which are not the first ones.
  const [newest] = (await access.listAudit({ limit: 1 })).records;
  for (let after = 0n; newest !== undefined && after < newest.id; ) {
    const { records } = await access.listAudit({ after, limit: pageSize, fromOldest: true });
    const end = records.at(-1)?.id;
    if (end === undefined) break;
    for (const record of records) {
      const problem = chain.add(record);
      if (problem !== undefined) problems.push(problem);
      isIncluded ||= record.hash === includes;
    }
    after = end;
  }
  if (newest !== undefined && chain.records === 0) {
    problems.push(
      "no record has a hash: the token is not an administrator's, or the controller is of an older version",
    );
  }
  if (!isIncluded) problems.push(`no record has the hash ${includes}`);
  return { chain, problems };
}

function describe({ records, unchained, last }: AuditChain, problems: readonly string[]): string {
  const older = unchained === 0 ? "" : `, and ${unchained} older ones without hashes`;
  const lines =
    problems.length === 0 ? [`the audit is intact: ${records} chained records${older}`] : [...problems];
  if (last !== undefined) lines.push(`newest: record ${last.id} ${last.hash}`);
  return `${lines.join("\n")}\n`;
}

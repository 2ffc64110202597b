// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import { type DocumentMember, documentMembers } from "../../claim/document-members.ts";
import { layOut, layOutFields } from "../../output/table.ts";

export function run(_values: object, [kind = "", member]: readonly string[]): Promise<number> {
  const members = Object.entries(documentMembers).find(([each]) => each === kind)?.[1] ?? [];
  const found = members.find(({ name }) => name === member);
  if (member !== undefined && found === undefined) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `a ${kind} has no member ${quote(member)}`, {
      remedy: `List them with \`millpond explain ${kind}\`.`,
    });
  }
  process.stdout.write(`${found === undefined ? listOf(members) : detailsOf(found)}\n`);
  return Promise.resolve(exitStatus.ok);
}

function listOf(members: readonly DocumentMember[]): string {
  const columns = [
    { title: "MEMBER", cell: ({ name }: DocumentMember) => name },
    { title: "DEFAULT", cell: ({ byDefault }: DocumentMember) => byDefault },
    { title: "MEANING", cell: ({ description }: DocumentMember) => description },
  ];
  return layOut(columns, members, { headers: true }).lines.join("\n");
}

function detailsOf({
  name,
  description,
  byDefault,
  option,
  variable,
  choices,
  example,
}: DocumentMember): string {
  const fields: readonly (readonly [string, string | undefined])[] = [
    ["Member", name],
    ["Meaning", description],
    ["Default", byDefault],
    ["Choices", choices?.join(", ")],
    ["Example", example === undefined ? undefined : `${name}: ${example}`],
    ["Option", option],
    ["Variable", variable],
  ];
  return layOutFields(fields.flatMap(([title, value]) => (value === undefined ? [] : [[title, value]])));
}

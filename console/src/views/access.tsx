// SPDX-License-Identifier: Apache-2.0

import type { AuditRecord, Token } from "@millpond/api/browser";
import { dateTime } from "../parts/format.ts";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, View } from "../parts/view.tsx";
import { access } from "../state/calls.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

export function AccessView() {
  const t = texts();
  const watched = useWatch("tokens", async (signal) => (await access.listTokens({}, { signal })).tokens);
  const columns: Column<Token>[] = [
    { id: "name", title: t.name, width: "minmax(10rem, 1fr)", value: ({ name }) => name },
    { id: "role", title: t.role, width: "8rem", value: ({ role }) => role },
    { id: "tenant", title: t.tenant, width: "8rem", value: ({ tenant }) => tenant },
    {
      id: "created",
      title: t.created,
      width: "13rem",
      value: ({ createdAt }) => Number(createdAt),
      cell: ({ createdAt }) => dateTime(createdAt),
    },
    { id: "by", title: t.createdBy, width: "minmax(8rem, 1fr)", value: ({ createdBy }) => createdBy },
    {
      id: "expires",
      title: t.expires,
      width: "13rem",
      value: ({ expiresAt }) => (expiresAt === 0n ? Number.MAX_SAFE_INTEGER : Number(expiresAt)),
      cell: ({ expiresAt }) => dateTime(expiresAt),
    },
  ];
  return (
    <View title={t.views.access} command="millpond token list">
      <Awaited of={watched}>
        {(tokens) => <Table label={t.views.access} items={tokens} columns={columns} />}
      </Awaited>
    </View>
  );
}

const batch = 1000;
const mostKept = 10_000;

/** Goes on where the last answer ended, as events do. */
export function AuditView() {
  const t = texts();
  const watched = useWatch<readonly AuditRecord[]>("audit", async (signal, before = []) => {
    const { records } = await access.listAudit({ after: before[0]?.id ?? 0n, limit: batch }, { signal });
    return records.length === 0 ? before : [...records.toReversed(), ...before].slice(0, mostKept);
  });
  const columns: Column<AuditRecord>[] = [
    {
      id: "time",
      title: t.time,
      width: "13rem",
      value: ({ id }) => Number(id),
      cell: ({ at }) => dateTime(at),
    },
    { id: "who", title: t.who, width: "minmax(8rem, 1fr)", value: ({ who }) => who },
    { id: "role", title: t.role, width: "8rem", value: ({ role }) => role },
    { id: "tenant", title: t.tenant, width: "7rem", value: ({ tenant }) => tenant },
    { id: "what", title: t.what, width: "minmax(13rem, 1.2fr)", value: ({ what }) => what },
    { id: "subject", title: t.subject, width: "minmax(9rem, 1fr)", value: ({ subject }) => subject },
    { id: "why", title: t.why, width: "minmax(9rem, 1.5fr)", value: ({ why }) => why },
    { id: "result", title: t.result, width: "minmax(6rem, 1fr)", value: ({ result }) => result },
  ];
  return (
    <View title={t.views.audit} command="millpond get audit">
      <Awaited of={watched}>
        {(records) => <Table label={t.views.audit} items={records} columns={columns} />}
      </Awaited>
    </View>
  );
}

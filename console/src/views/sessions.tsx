// SPDX-License-Identifier: Apache-2.0

import type { Session } from "@millpond/api/browser";
import { age, bytes } from "../parts/format.ts";
import { Link } from "../parts/link.tsx";
import { Meter } from "../parts/meter.tsx";
import { SessionBadge, sessionStateWord } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, View } from "../parts/view.tsx";
import { pool } from "../state/calls.ts";
import { addressOf } from "../state/place.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

/** For all its devices, percent; undefined: unknown for at least one. */
function measuredOf({ devices }: Session): number | undefined {
  return devices.some(({ computeUsedPercent }) => computeUsedPercent === undefined)
    ? undefined
    : devices.reduce((sum, { computeUsedPercent }) => sum + (computeUsedPercent ?? 0), 0);
}

function grantedOf({ devices }: Session): number {
  return devices.reduce((sum, { granted }) => sum + (granted?.computePercent ?? 0), 0);
}

function memoryOf({ devices }: Session): bigint {
  return devices.reduce((sum, { memoryUsedBytes }) => sum + memoryUsedBytes, 0n);
}

export function SessionTable({ claim = "", node = "" }: { readonly claim?: string; readonly node?: string }) {
  const t = texts();
  const watched = useWatch(`sessions ${claim} ${node}`, async (signal) => {
    const { sessions } = await pool.listSessions({ claim, node }, { signal });
    return sessions;
  });
  const columns: Column<Session>[] = [
    {
      id: "program",
      title: t.program,
      width: "minmax(9rem, 1.2fr)",
      value: ({ program, clientPid }) => `${program || "?"} (${clientPid || "?"})`,
    },
    {
      id: "claim",
      title: t.claim,
      width: "minmax(9rem, 1.2fr)",
      value: (session) => session.claim,
      cell: (session) => <Link to={addressOf("claims", session.claim)}>{session.claim}</Link>,
    },
    {
      id: "state",
      title: t.state,
      width: "8rem",
      value: ({ state }) => sessionStateWord(state),
      cell: ({ state }) => <SessionBadge state={state} />,
    },
    {
      id: "where",
      title: t.where,
      width: "minmax(8rem, 1fr)",
      value: (session) => `${session.node}/${session.devices.map(({ index }) => index).join(",")}`,
    },
    {
      id: "measured",
      title: t.measured,
      width: "11rem",
      isNumber: true,
      value: measuredOf,
      cell: (session) => {
        const whole = 100 * Math.max(1, session.devices.length);
        const measured = measuredOf(session);
        return (
          <Meter
            granted={grantedOf(session) / whole}
            measured={measured === undefined ? undefined : measured / whole}
          />
        );
      },
    },
    {
      id: "memory",
      title: t.memory,
      width: "7rem",
      isNumber: true,
      value: (session) => Number(memoryOf(session)),
      cell: (session) => bytes(memoryOf(session)),
    },
    { id: "transport", title: t.transport, width: "6rem", value: ({ transport }) => transport },
    { id: "host", title: t.host, width: "minmax(7rem, 1fr)", value: ({ clientHost }) => clientHost },
    { id: "calls", title: t.calls, width: "7rem", isNumber: true, value: ({ commands }) => Number(commands) },
    {
      id: "launches",
      title: t.launches,
      width: "7rem",
      isNumber: true,
      value: ({ launches }) => Number(launches),
    },
    { id: "waits", title: t.waits, width: "6rem", isNumber: true, value: ({ waits }) => Number(waits) },
    {
      id: "started",
      title: t.started,
      width: "6rem",
      isNumber: true,
      value: ({ startedAt }) => Number(startedAt),
      cell: ({ startedAt }) => age(startedAt),
    },
  ];
  return (
    <Awaited of={watched}>
      {(sessions) => (
        <Table
          label={t.views.sessions}
          items={sessions}
          columns={columns}
          isPart={claim !== "" || node !== ""}
        />
      )}
    </Awaited>
  );
}

export function SessionsView() {
  return (
    <View title={texts().views.sessions} command="millpond get sessions">
      <SessionTable />
    </View>
  );
}

// SPDX-License-Identifier: Apache-2.0

import type { Event } from "@millpond/api/browser";
import { dateTime } from "../parts/format.ts";
import { Link } from "../parts/link.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, View } from "../parts/view.tsx";
import { pool } from "../state/calls.ts";
import { addressOf } from "../state/place.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

const batch = 1000;
const mostKept = 10_000;

/** Events continue where the last answer ended, so that none is missed or repeated, whichever controller answers. */
export function EventList({ subject = "" }: { readonly subject?: string }) {
  const t = texts();
  const watched = useWatch<readonly Event[]>(`events ${subject}`, async (signal, before = []) => {
    const after = before[0]?.id ?? 0n;
    const { events } = await pool.listEvents({ subject, after, limit: batch }, { signal });
    return events.length === 0 ? before : [...events.toReversed(), ...before].slice(0, mostKept);
  });
  const columns: Column<Event>[] = [
    {
      id: "time",
      title: t.time,
      width: "13rem",
      value: ({ id }) => Number(id),
      cell: ({ at }) => dateTime(at),
    },
    { id: "kind", title: t.kind, width: "11rem", value: ({ kind }) => kind },
    {
      id: "subject",
      title: t.subject,
      width: "minmax(9rem, 1fr)",
      value: (event) => event.subject,
      cell: (event) => <Subject of={event.subject} />,
    },
    { id: "message", title: t.message, width: "minmax(16rem, 4fr)", value: ({ message }) => message },
  ];
  return (
    <Awaited of={watched}>
      {(events) => <Table label={t.views.events} items={events} columns={columns} isPart={subject !== ""} />}
    </Awaited>
  );
}

/** `claim/NAME`, `node/NAME` and `device/NODE/INDEX` have pages. */
function Subject({ of }: { readonly of: string }) {
  const [kind, name = ""] = of.split("/");
  if (kind === "claim") {
    return <Link to={addressOf("claims", name)}>{of}</Link>;
  }
  return kind === "node" || kind === "device" ? <Link to={addressOf("nodes", name)}>{of}</Link> : <>{of}</>;
}

export function EventsView() {
  return (
    <View title={texts().views.events} command="millpond get events">
      <EventList />
    </View>
  );
}

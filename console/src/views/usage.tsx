// SPDX-License-Identifier: Apache-2.0

import type { Usage } from "@millpond/api/browser";
import { dateTime } from "../parts/format.ts";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, View } from "../parts/view.tsx";
import { queues } from "../state/calls.ts";
import { controllerNow } from "../state/clock.ts";
import { setQuery, usePlace } from "../state/place.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

const secondsPerHour = 3600;

/** The number of days, by the word in the address. */
const periods = { "1d": 1, "7d": 7, "30d": 30, "365d": 365 } as const;
const periodNames = Object.keys(periods) as readonly (keyof typeof periods)[];

export function UsageView() {
  const t = texts();
  const { query } = usePlace();
  const since = periodNames.find((name) => name === query.get("since"));
  const watched = useWatch(`usage ${since}`, async (signal) => {
    const from = since === undefined ? 0 : Math.floor(controllerNow() / 1000) - periods[since] * 86_400;
    return await queues.getUsage({ from: BigInt(from) }, { signal });
  });
  const hours = (id: string, title: string, seconds: (usage: Usage) => number): Column<Usage> => ({
    id,
    title,
    width: "8.4rem",
    isNumber: true,
    value: (usage) => Number((seconds(usage) / secondsPerHour).toFixed(3)),
    cell: (usage) => (seconds(usage) / secondsPerHour).toFixed(2),
  });
  const columns: Column<Usage>[] = [
    { id: "tenant", title: t.tenant, width: "minmax(8rem, 1fr)", value: ({ tenant }) => tenant },
    { id: "queue", title: t.queue, width: "minmax(8rem, 1fr)", value: ({ queue }) => queue },
    { id: "claims", title: t.views.claims, width: "6rem", isNumber: true, value: ({ claims }) => claims },
    hours("asked", t.askedHours, ({ askedGpuSeconds }) => askedGpuSeconds),
    hours("granted", t.grantedHours, ({ grantedGpuSeconds }) => grantedGpuSeconds),
    hours("used", t.usedHours, ({ usedGpuSeconds }) => usedGpuSeconds),
    hours("wasted", t.wastedHours, ({ wastedGpuSeconds }) => wastedGpuSeconds),
    hours("waited", t.waitedHours, ({ waitedSeconds }) => waitedSeconds),
  ];
  const controls = (
    <label>
      <span class="quiet">{t.period}</span>
      <select value={since ?? ""} onChange={({ currentTarget }) => setQuery({ since: currentTarget.value })}>
        <option value="">{t.periodAll}</option>
        {periodNames.map((name) => (
          <option value={name} key={name}>
            {t.days(periods[name])}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <View title={t.views.usage} command={`millpond usage${since === undefined ? "" : ` --since ${since}`}`}>
      <Awaited of={watched}>
        {({ usage, from, to }) => (
          <>
            <p class="quiet">{from === 0n ? t.until(dateTime(to)) : `${dateTime(from)} – ${dateTime(to)}`}</p>
            <Table label={t.views.usage} items={usage} columns={columns} controls={controls} />
          </>
        )}
      </Awaited>
    </View>
  );
}

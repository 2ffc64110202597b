// SPDX-License-Identifier: Apache-2.0

import type { Node } from "@millpond/api/browser";
import { age } from "../parts/format.ts";
import { NodeBadge, nodeStateWord } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, Labels, View } from "../parts/view.tsx";
import { useNodes } from "../state/nodes.ts";
import { addressOf } from "../state/place.ts";
import { texts } from "../texts/texts.ts";

export function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(" ");
}

export function NodesView() {
  const t = texts();
  const nodes = useNodes();
  const granted = ({ devices }: Node) =>
    devices.reduce((sum, { allocatedComputePercent }) => sum + allocatedComputePercent, 0) / 100;
  const columns: Column<Node>[] = [
    { id: "name", title: t.name, width: "minmax(9rem, 1fr)", value: ({ name }) => name },
    {
      id: "state",
      title: t.state,
      width: "11rem",
      value: nodeStateWord,
      cell: (node) => <NodeBadge node={node} />,
    },
    { id: "gpus", title: t.gpus, width: "5rem", isNumber: true, value: ({ devices }) => devices.length },
    {
      id: "granted",
      title: t.granted,
      width: "6rem",
      isNumber: true,
      value: granted,
      cell: (node) => granted(node).toFixed(1),
    },
    {
      id: "sessions",
      title: t.sessions,
      width: "6rem",
      isNumber: true,
      value: ({ devices }) => devices.reduce((sum, { openSessions }) => sum + openSessions, 0),
    },
    { id: "agent", title: t.agent, width: "6rem", value: ({ agentVersion }) => agentVersion },
    {
      id: "driver",
      title: t.driver,
      width: "7rem",
      value: ({ devices }) => devices[0]?.driverVersion || devices[0]?.kind,
    },
    {
      id: "contact",
      title: t.contact,
      width: "8rem",
      value: ({ lastContactAt }) => Number(lastContactAt),
      cell: ({ lastContactAt }) => (lastContactAt === 0n ? t.never : t.ago(age(lastContactAt))),
    },
    {
      id: "reason",
      title: t.reason,
      width: "minmax(8rem, 1.5fr)",
      value: ({ reason, cordonReason }) => reason || cordonReason,
    },
    {
      id: "labels",
      title: t.labels,
      width: "minmax(10rem, 1.5fr)",
      value: ({ labels }) => labelText(labels),
      cell: ({ labels }) => <Labels of={labels} />,
    },
  ];
  return (
    <View title={t.views.nodes} command="millpond get nodes">
      <Awaited of={nodes}>
        {(all) => (
          <Table
            label={t.views.nodes}
            items={all}
            columns={columns}
            addressOf={({ name }) => addressOf("nodes", name)}
          />
        )}
      </Awaited>
    </View>
  );
}

// SPDX-License-Identifier: Apache-2.0

import { age, dateTime } from "../parts/format.ts";
import { NodeBadge } from "../parts/states.tsx";
import { nameWord } from "../parts/shell.ts";
import { Table } from "../parts/table.tsx";
import { Awaited, Fields, Labels, View } from "../parts/view.tsx";
import { pool } from "../state/calls.ts";
import { type Me, mayAs } from "../state/login.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";
import { EventList } from "./events.tsx";
import { gpuColumns } from "./gpus.tsx";
import { GpuAction, NodeActions } from "./node-actions.tsx";
import { SessionTable } from "./sessions.tsx";

export function NodeView({ name, me }: { readonly name: string; readonly me: Me }) {
  const t = texts();
  const watched = useWatch(`node ${name}`, async (signal) => {
    const { node } = await pool.getNode({ name }, { signal });
    return node;
  });
  return (
    <View
      title={`${t.node} ${name}`}
      command={`millpond describe node ${nameWord(name)}`}
      more={
        watched.data !== undefined &&
        mayAs(me, "admin") && <NodeActions node={watched.data} onDone={watched.again} />
      }
    >
      <Awaited of={watched}>
        {(node) =>
          node !== undefined && (
            <>
              <Fields
                of={[
                  [t.state, <NodeBadge node={node} />],
                  ...(node.reason === "" ? [] : ([[t.reason, node.reason]] as const)),
                  ...(node.cordonReason === "" ? [] : ([[t.states.cordoned, node.cordonReason]] as const)),
                  [t.host, node.hostname],
                  [t.agent, `${node.agentVersion} · ${node.agentUrl}`],
                  [t.contact, node.lastContactAt === 0n ? t.never : t.ago(age(node.lastContactAt))],
                  [t.created, dateTime(node.joinedAt)],
                  [t.labels, <Labels of={node.labels} />],
                ]}
              />
              <h2>{t.views.gpus}</h2>
              <Table
                label={t.views.gpus}
                items={node.devices.map((device) => ({ node, device }))}
                columns={gpuColumns(
                  node.devices.map((device) => ({ node, device })),
                  mayAs(me, "admin")
                    ? [
                        {
                          id: "actions",
                          title: t.actionsTitle,
                          width: "8rem",
                          value: () => "",
                          cell: (gpu) => <GpuAction key={gpu.device.uuid} gpu={gpu} onDone={watched.again} />,
                        },
                      ]
                    : [],
                )}
                isPart
              />
            </>
          )
        }
      </Awaited>
      <h2>{t.views.sessions}</h2>
      <SessionTable node={name} />
      <h2>{t.views.events}</h2>
      <EventList subject={`node/${name}`} />
    </View>
  );
}

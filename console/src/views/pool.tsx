// SPDX-License-Identifier: Apache-2.0

import type { ComponentChildren } from "preact";
import { type Claim, ClaimState, type GetVersionResponse, type Node, NodeState } from "@millpond/api/browser";
import { age, bytes, partOf, percent, secondsSince } from "../parts/format.ts";
import { Link } from "../parts/link.tsx";
import { Meter } from "../parts/meter.tsx";
import { GpuBadge, NodeBadge } from "../parts/states.tsx";
import { WideStrip } from "../parts/strip.tsx";
import { Awaited, View } from "../parts/view.tsx";
import { claims, pool } from "../state/calls.ts";
import { samplesOf } from "../state/history.ts";
import { type Gpu, gpusOf, gpuState, measuredOf, useNodes, usedMemoryOf } from "../state/nodes.ts";
import { addressOf } from "../state/place.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

interface Sum {
  readonly gpus: number;
  /** In GPUs. */
  readonly granted: number;
  /** In GPUs; undefined: unknown for at least one. */
  readonly measured: number | undefined;
  readonly memory: bigint;
  readonly grantedMemory: bigint;
  readonly usedMemory: bigint | undefined;
}

function sumOf(gpus: readonly Gpu[]): Sum {
  const plus = <V extends number | bigint>(a: V | undefined, b: V | undefined, add: (a: V, b: V) => V) =>
    a === undefined || b === undefined ? undefined : add(a, b);
  let measured: number | undefined = 0;
  let usedMemory: bigint | undefined = 0n;
  let [granted, memory, grantedMemory] = [0, 0n, 0n];
  for (const gpu of gpus) {
    granted += gpu.device.allocatedComputePercent / 100;
    memory += gpu.device.memoryBytes;
    grantedMemory += gpu.device.allocatedMemoryBytes;
    measured = plus<number>(measured, measuredOf(gpu), (a, b) => a + b / 100);
    usedMemory = plus<bigint>(usedMemory, usedMemoryOf(gpu), (a, b) => a + b);
  }
  return { gpus: gpus.length, granted, measured, memory, grantedMemory, usedMemory };
}

export function PoolView() {
  const t = texts();
  const nodes = useNodes();
  const live = useWatch("claims", async (signal) => (await claims.listClaims({}, { signal })).claims);
  const version = useWatch("version", async (signal) => await pool.getVersion({}, { signal }));
  return (
    <View title={t.views.pool} command="millpond smi">
      <Awaited of={nodes}>
        {(all) => (
          <>
            <Numbers nodes={all} live={live.data} version={version.data} />
            <Trend gpus={gpusOf(all).length} />
            <Attention nodes={all} />
            <Models nodes={all} />
          </>
        )}
      </Awaited>
    </View>
  );
}

function Numbers({
  nodes,
  live,
  version,
}: {
  readonly nodes: readonly Node[];
  readonly live: readonly Claim[] | undefined;
  readonly version: GetVersionResponse | undefined;
}) {
  const t = texts();
  const sum = sumOf(gpusOf(nodes));
  const waiting = live?.filter(({ state }) => state === ClaimState.PENDING) ?? [];
  const bound = live?.filter(({ state }) => state === ClaimState.BOUND).length;
  const oldest = waiting
    .map(({ waitingSince }) => waitingSince)
    .reduce((least, each) => (least === 0n || each < least ? each : least), 0n);
  const ready = nodes.filter(({ state }) => state === NodeState.READY).length;
  const decimal = (value: number | undefined) => (value === undefined ? t.unknown : value.toFixed(1));
  return (
    <div class="cards">
      <Card title={t.compute} to={addressOf("gpus")}>
        <strong>{decimal(sum.granted)}</strong> {t.of} {sum.gpus} GPU {t.granted}
        <Meter
          granted={sum.gpus === 0 ? 0 : sum.granted / sum.gpus}
          measured={sum.measured === undefined ? undefined : sum.gpus === 0 ? 0 : sum.measured / sum.gpus}
          text={`${t.measured} ${decimal(sum.measured)}`}
        />
      </Card>
      <Card title={t.memory} to={addressOf("gpus")}>
        <strong>{bytes(sum.grantedMemory)}</strong> {t.of} {bytes(sum.memory)} {t.granted}
        <Meter
          granted={partOf(sum.grantedMemory, sum.memory)}
          measured={sum.usedMemory === undefined ? undefined : partOf(sum.usedMemory, sum.memory)}
          text={`${t.used} ${bytes(sum.usedMemory)}`}
        />
      </Card>
      <Card title={t.views.nodes} to={addressOf("nodes")}>
        <strong>{ready}</strong> {t.of} {nodes.length} {t.states.ready}
      </Card>
      <Card title={t.views.claims} to={addressOf("claims")}>
        <strong>{bound ?? t.unknown}</strong> {t.states.bound}
      </Card>
      <Card title={t.waiting} to={`${addressOf("claims")}?state=pending`}>
        <strong>{live === undefined ? t.unknown : waiting.length}</strong>
        {secondsSince(oldest) !== undefined && ` · ${t.oldestWait} ${age(oldest)}`}
      </Card>
      <Card title={t.version} to={addressOf("events")}>
        {version === undefined ? (
          t.unknown
        ) : (
          <>
            <strong>{version.version}</strong> · {leaderText(version)}
          </>
        )}
      </Card>
    </div>
  );
}

function leaderText({ leads, leaderUrl }: GetVersionResponse): string {
  const t = texts();
  if (leads) {
    return t.leads;
  }
  return leaderUrl === "" ? t.noLeader : `${t.leader} ${leaderUrl}`;
}

function Card({
  title,
  to,
  children,
}: {
  readonly title: string;
  readonly to: string;
  readonly children: ComponentChildren;
}) {
  return (
    <div class="card">
      <h2>
        <Link to={to}>{title}</Link>
      </h2>
      <div>{children}</div>
    </div>
  );
}

function Trend({ gpus }: { readonly gpus: number }) {
  const t = texts();
  const samples = samplesOf();
  return (
    <figure class="trend">
      <figcaption>{t.computeOfPool}</figcaption>
      <WideStrip samples={samples} label={t.computeOfPool} full={Math.max(1, gpus) * 100} height={72} />
    </figure>
  );
}

/** Many simultaneous problems usually have one cause, which the first ones show. */
const mostShown = 50;

function Attention({ nodes }: { readonly nodes: readonly Node[] }) {
  const t = texts();
  const ill = nodes.filter(({ state, cordoned }) => state !== NodeState.READY || cordoned);
  const illGpus = gpusOf(nodes).filter((gpu) => {
    const state = gpuState(gpu);
    return state === "unhealthy" || (state === "cordoned" && !gpu.node.cordoned);
  });
  return (
    <section class="panel">
      <h2>{t.attention}</h2>
      {ill.length + illGpus.length === 0 ? (
        <p class="quiet">{t.noAttention}</p>
      ) : (
        <ul class="attention">
          {ill.slice(0, mostShown).map((node) => (
            <li key={node.name}>
              <NodeBadge node={node} /> <Link to={addressOf("nodes", node.name)}>{node.name}</Link>{" "}
              {node.reason || node.cordonReason}
            </li>
          ))}
          {illGpus.slice(0, mostShown).map((gpu) => (
            <li key={`${gpu.node.name}/${gpu.device.uuid}`}>
              <GpuBadge gpu={gpu} />{" "}
              <Link to={addressOf("nodes", gpu.node.name)}>
                {gpu.node.name}/{gpu.device.index}
              </Link>{" "}
              {gpu.device.healthReason || gpu.device.cordonReason}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Models({ nodes }: { readonly nodes: readonly Node[] }) {
  const t = texts();
  const models = Map.groupBy(gpusOf(nodes), ({ device }) => device.name);
  return (
    <section class="panel">
      <h2>{t.byModel}</h2>
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">{t.model}</th>
            <th scope="col">{t.gpus}</th>
            <th scope="col">{t.compute}</th>
            <th scope="col">{t.memory}</th>
          </tr>
        </thead>
        <tbody>
          {[...models].map(([model, gpus]) => {
            const sum = sumOf(gpus);
            return (
              <tr key={model}>
                <th scope="row">{model}</th>
                <td>{sum.gpus}</td>
                <td>
                  <Meter
                    granted={sum.granted / sum.gpus}
                    measured={sum.measured === undefined ? undefined : sum.measured / sum.gpus}
                    text={`${percent((sum.granted / sum.gpus) * 100)} ${t.granted}`}
                  />
                </td>
                <td>
                  <Meter
                    granted={partOf(sum.grantedMemory, sum.memory)}
                    measured={sum.usedMemory === undefined ? undefined : partOf(sum.usedMemory, sum.memory)}
                    text={`${bytes(sum.grantedMemory)} ${t.of} ${bytes(sum.memory)}`}
                  />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

// SPDX-License-Identifier: Apache-2.0

import { useMemo } from "preact/hooks";
import { NodeState, type Node } from "@millpond/api/browser";
import { Field } from "../parts/field.tsx";
import { bytes, percent } from "../parts/format.ts";
import { Link } from "../parts/link.tsx";
import { shellWord } from "../parts/shell.ts";
import { noSize, parseSizeText, readableSize, SizeFields } from "../parts/size.tsx";
import { Awaited, Plain, View } from "../parts/view.tsx";
import { type Gpu, gpuState, gpusOf, useNodes } from "../state/nodes.ts";
import { addressOf, setQuery, usePlace } from "../state/place.ts";
import { type WhatIfResult, roomByModel, whatIf } from "../state/what-if.ts";
import { texts } from "../texts/texts.ts";

/** A request, as in the address. */
interface WishText {
  readonly gpus: string;
  readonly memory: string;
  readonly compute: string;
  readonly model: string;
}

function useWish(): readonly [WishText, (next: WishText) => void] {
  const { query } = usePlace();
  const of = (key: string) => query.get(key) ?? "";
  const wish = { gpus: of("n"), memory: of("m"), compute: of("c"), model: of("model") };
  return [wish, (next) => setQuery({ n: next.gpus, m: next.memory, c: next.compute, model: next.model })];
}

function commandOf({ model, ...size }: WishText): string {
  const { gpus, memory, compute } = readableSize(size);
  const options = [
    ["-n", gpus === "" ? "1" : gpus],
    ["-m", memory],
    ["-c", compute],
  ].flatMap(([flag = "", value = ""]) => (value === "" ? [] : [flag, value]));
  // A fixed word, so that no model name is interpreted as an option.
  if (model !== "") {
    options.push(`--model=${shellWord(model)}`);
  }
  return ["millpond run --no-wait", ...options, "-- PROGRAM"].join(" ");
}

/** The outcome, or the problem with a text of the form. */
function judge(
  nodes: readonly Node[],
  text: WishText,
): WhatIfResult | { readonly kind: "wrong"; readonly reason: string } {
  try {
    const size = parseSizeText(text);
    if (!Number.isInteger(size.gpus) || size.gpus < 0) {
      return { kind: "wrong", reason: `${texts().gpus}: ${text.gpus}` };
    }
    return whatIf(nodes, { ...size, gpus: Math.max(1, size.gpus), model: text.model.trim() });
  } catch (error) {
    return { kind: "wrong", reason: error instanceof Error ? error.message : String(error) };
  }
}

export function PlacementView() {
  const t = texts();
  const nodes = useNodes();
  const [wish, setWish] = useWish();
  const { gpus, memory, compute, model } = wish;
  const outcome = useMemo(
    () => (nodes.data === undefined ? undefined : judge(nodes.data, wish)),
    [nodes.data, gpus, memory, compute, model],
  );
  return (
    <View title={t.views.placement} command={commandOf(wish)}>
      <Awaited of={nodes}>
        {(all) => (
          <>
            <section class="panel" aria-label={t.whatIf.title}>
              <h2>{t.whatIf.title}</h2>
              <div class="inline-form">
                <SizeFields
                  of={{ ...noSize, gpus, memory, compute }}
                  onChange={(size) => setWish({ ...wish, ...size })}
                />
                <Field
                  label={t.model}
                  value={model}
                  onChange={(next) => setWish({ ...wish, model: next })}
                  placeholder={all[0]?.devices[0]?.name ?? ""}
                />
              </div>
              {outcome !== undefined && <Verdict of={outcome} />}
              <p class="quiet">{t.whatIf.means}</p>
            </section>
            <Rooms gpus={gpusOf(all)} />
            <Floor nodes={all} chosen={outcome?.kind === "placed" ? outcome : undefined} />
          </>
        )}
      </Awaited>
    </View>
  );
}

/** Where the claim would go; undefined: nowhere. */
type Chosen = Extract<WhatIfResult, { readonly kind: "placed" }> | undefined;

function Verdict({ of }: { readonly of: ReturnType<typeof judge> }) {
  const t = texts();
  if (of.kind !== "placed") {
    return (
      <p class={of.kind === "wrong" ? "trouble" : "verdict waits"} role="status">
        {of.kind === "wrong" ? of.reason : t.whatIf.waits(of.reason)}
      </p>
    );
  }
  return (
    <p class="verdict starts" role="status">
      <strong>{t.whatIf.starts}</strong>{" "}
      <Link to={addressOf("nodes", of.node)}>
        {of.node}/{of.indexes.join(",")}
      </Link>{" "}
      · {t.whatIf.fit(of.count, of.isLeast)}
    </p>
  );
}

function Rooms({ gpus }: { readonly gpus: readonly Gpu[] }) {
  const t = texts();
  return (
    <Plain
      label={t.room.title}
      heads={[t.model, t.gpus, t.room.whole, t.room.memory, t.room.fragmented, t.room.largest]}
    >
      {roomByModel(gpus).map((room) => (
        <tr key={room.model}>
          <th scope="row">{room.model}</th>
          <td>{room.gpus}</td>
          <td>{room.whole}</td>
          <td>{bytes(room.freeMemory)}</td>
          <td>{percent(room.fragmented * 100)}</td>
          <td>
            {bytes(room.largestMemory)} · {percent(room.largestCompute)}
          </td>
        </tr>
      ))}
    </Plain>
  );
}

/** Labels that sites use for the location of a node, the most common ones first. */
const usualGroups = ["rack", "zone", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"];
/** Others can be found with the filter of the nodes. */
const mostShown = 1500;

function Floor({ nodes, chosen }: { readonly nodes: readonly Node[]; readonly chosen: Chosen }) {
  const t = texts();
  const { query } = usePlace();
  const keys = [...new Set(nodes.flatMap(({ labels }) => Object.keys(labels)))].toSorted();
  const key = query.get("by") ?? usualGroups.find((each) => keys.includes(each)) ?? "";
  const groups = [...Map.groupBy(nodes.slice(0, mostShown), ({ labels }) => labels[key] ?? "")].toSorted(
    ([a], [b]) => (a < b ? -1 : 1),
  );
  return (
    <section class="panel" aria-label={t.floor.title}>
      <div class="floor-head">
        <h2>{t.floor.title}</h2>
        <ul class="legend" aria-label={t.floor.legend}>
          {(["ok", "cordoned", "unhealthy", "unknown"] as const).map((state) => (
            <li key={state}>
              <span class={`gpu-cell ${state}`} aria-hidden="true" /> {t.states[state]}
            </li>
          ))}
          <li>
            <span class="gpu-cell ok chosen" aria-hidden="true" /> {t.floor.chosen}
          </li>
        </ul>
        {keys.length > 0 && (
          <label>
            <span class="quiet">{t.floor.by}</span>{" "}
            <select value={key} onChange={({ currentTarget }) => setQuery({ by: currentTarget.value })}>
              <option value="">{t.floor.ungrouped}</option>
              {keys.map((each) => (
                <option value={each} key={each}>
                  {each}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      {groups.map(([group, members]) => (
        <div class="floor-group" key={group}>
          {key !== "" && <h3>{group === "" ? t.floor.unlabelled(key) : `${key}=${group}`}</h3>}
          <div class="floor-nodes">
            {members.map((node) => (
              <FloorNode key={node.name} node={node} chosen={chosen} />
            ))}
          </div>
        </div>
      ))}
      {nodes.length > mostShown && <p class="quiet">{t.floor.more(nodes.length - mostShown)}</p>}
    </section>
  );
}

function FloorNode({ node, chosen }: { readonly node: Node; readonly chosen: Chosen }) {
  const t = texts();
  const granted = node.devices.reduce((sum, { allocatedComputePercent }) => sum + allocatedComputePercent, 0);
  const said = t.floor.node(node.devices.length, granted, node.state === NodeState.READY);
  return (
    <div class="floor-node">
      <Link to={addressOf("nodes", node.name)}>{node.name}</Link>
      <div class="floor-gpus" role="img" aria-label={`${node.name}: ${said}`}>
        {node.devices.map((device) => {
          const gpu = { node, device };
          const isChosen = chosen?.node === node.name && chosen.uuids.has(device.uuid);
          return (
            <span
              key={device.uuid}
              class={`gpu-cell ${gpuState(gpu)}${isChosen ? " chosen" : ""}`}
              title={t.floor.gpu(
                `${node.name}/${device.index}`,
                device.name,
                device.allocatedComputePercent,
                `${bytes(device.allocatedMemoryBytes)} / ${bytes(device.memoryBytes)}`,
              )}
            >
              <span style={{ height: `${Math.min(100, device.allocatedComputePercent)}%` }} />
            </span>
          );
        })}
      </div>
    </div>
  );
}

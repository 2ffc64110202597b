// SPDX-License-Identifier: Apache-2.0

import { bytes, partOf, percent } from "../parts/format.ts";
import { Meter } from "../parts/meter.tsx";
import { GpuBadge, gpuStateWord } from "../parts/states.tsx";
import { Strip } from "../parts/strip.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, View } from "../parts/view.tsx";
import { samplesOf } from "../state/history.ts";
import { type Gpu, gpusOf, measuredOf, useNodes, usedMemoryOf } from "../state/nodes.ts";
import { addressOf } from "../state/place.ts";
import { texts } from "../texts/texts.ts";

function nameOf({ node, device }: Gpu): string {
  return `${node.name}/${device.index}`;
}

/**
 * Temperature, power and clock. The controller sends them to administrators, and to a tenant for a device that one of its
 * claims has whole.
 */
function cardColumns(): Column<Gpu>[] {
  const t = texts();
  return [
    {
      id: "temperature",
      title: t.temperature,
      width: "6.5rem",
      isNumber: true,
      value: ({ device }) => device.card?.temperatureCelsius,
      cell: ({ device: { card } }) => withUnit(card?.temperatureCelsius, "°C"),
    },
    {
      id: "power",
      title: t.power,
      width: "8rem",
      isNumber: true,
      value: ({ device }) => device.card?.powerMilliwatts,
      cell: ({ device: { card } }) =>
        withUnit(watts(card?.powerMilliwatts), "W") +
        (card?.powerLimitMilliwatts === undefined ? "" : ` / ${watts(card.powerLimitMilliwatts)} W`),
    },
    {
      id: "clock",
      title: t.clock,
      width: "6.5rem",
      isNumber: true,
      value: ({ device }) => device.card?.smClockMhz,
      cell: ({ device: { card } }) => withUnit(card?.smClockMhz, "MHz"),
    },
  ];
}

function watts(milliwatts: number | undefined): number | undefined {
  return milliwatts === undefined ? undefined : Math.round(milliwatts / 1000);
}

function withUnit(value: number | undefined, unit: string): string {
  return value === undefined ? "–" : `${value} ${unit}`;
}

/**
 * @param items The GPUs: measurements have columns if there are any.
 * @param more Additional columns after the usual ones.
 */
export function gpuColumns(items: readonly Gpu[], more: readonly Column<Gpu>[] = []): Column<Gpu>[] {
  const t = texts();
  return [
    { id: "gpu", title: "GPU", width: "minmax(8rem, 1.2fr)", value: nameOf },
    { id: "model", title: t.model, width: "minmax(8rem, 1fr)", value: ({ device }) => device.name },
    {
      id: "state",
      title: t.state,
      width: "7rem",
      value: gpuStateWord,
      cell: (gpu) => <GpuBadge gpu={gpu} />,
    },
    {
      id: "heat",
      title: t.heat,
      width: "12.5rem",
      value: measuredOf,
      cell: (gpu) => (
        <Strip
          samples={samplesOf(nameOf(gpu))}
          label={t.heatOf(nameOf(gpu), gpu.device.allocatedComputePercent, measuredOf(gpu))}
          width={180}
        />
      ),
    },
    {
      id: "granted",
      title: t.granted,
      width: "5.5rem",
      isNumber: true,
      value: ({ device }) => device.allocatedComputePercent,
      cell: ({ device }) => percent(device.allocatedComputePercent),
    },
    {
      id: "measured",
      title: t.measured,
      width: "9rem",
      isNumber: true,
      value: measuredOf,
      cell: (gpu) => (
        <Meter granted={gpu.device.allocatedComputePercent / 100} measured={fraction(measuredOf(gpu))} />
      ),
    },
    {
      id: "memory",
      title: t.memory,
      width: "14rem",
      isNumber: true,
      value: (gpu) => toNumber(usedMemoryOf(gpu)),
      cell: (gpu) => {
        const { memoryBytes, allocatedMemoryBytes } = gpu.device;
        const used = usedMemoryOf(gpu);
        return (
          <Meter
            granted={partOf(allocatedMemoryBytes, memoryBytes)}
            measured={used === undefined ? undefined : partOf(used, memoryBytes)}
            text={`${bytes(used)} / ${bytes(memoryBytes)}`}
          />
        );
      },
    },
    {
      id: "sessions",
      title: t.sessions,
      width: "6rem",
      isNumber: true,
      value: ({ device }) => device.openSessions,
    },
    ...(items.some(({ device }) => device.card !== undefined) ? cardColumns() : []),
    {
      id: "reason",
      title: t.reason,
      width: "minmax(9rem, 1.5fr)",
      value: ({ device }) => device.healthReason || device.cordonReason,
    },
    ...more,
  ];
}

function fraction(value: number | undefined): number | undefined {
  return value === undefined ? undefined : value / 100;
}

function toNumber(value: bigint | undefined): number | undefined {
  return value === undefined ? undefined : Number(value);
}

export function GpusView() {
  const t = texts();
  const nodes = useNodes();
  return (
    <View title={t.views.gpus} command="millpond top devices">
      <Awaited of={nodes}>
        {(all) => {
          const items = gpusOf(all);
          return (
            <Table
              label={t.views.gpus}
              items={items}
              columns={gpuColumns(items)}
              addressOf={({ node }) => addressOf("nodes", node.name)}
            />
          );
        }}
      </Awaited>
    </View>
  );
}

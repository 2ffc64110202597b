// SPDX-License-Identifier: Apache-2.0

// Samples of devices since the page was opened: the controller keeps no time series, Prometheus does.

import { type Node, NodeState } from "@millpond/api/browser";

/** One sample, in percent of a device; undefined: not known. */
export interface Sample {
  readonly at: number;
  readonly granted: number;
  readonly measured: number | undefined;
}

/** As many as fit on a wide page. */
const mostSamples = 480;
/** The shortest time between samples: several views that refresh together produce one. */
const leastGapMs = 1000;

const series = new Map<string, Sample[]>();
let lastAt = 0;

const whole = "";

/** @returns the samples of one device, `node/index`, or of the pool, in GPUs × 100; oldest first */
export function samplesOf(device: string = whole): readonly Sample[] {
  return series.get(device) ?? [];
}

export function remember(nodes: readonly Node[], at: number): void {
  if (at - lastAt < leastGapMs) {
    return;
  }
  lastAt = at;
  const seen = new Set<string>([whole]);
  let granted = 0;
  let measured: number | undefined = 0;
  for (const node of nodes) {
    const isKnown = node.state === NodeState.READY;
    for (const device of node.devices) {
      const used = isKnown ? device.usedComputePercent : undefined;
      const name = `${node.name}/${device.index}`;
      seen.add(name);
      granted += device.allocatedComputePercent;
      measured = used === undefined || measured === undefined ? undefined : measured + used;
      add(name, { at, granted: device.allocatedComputePercent, measured: used });
    }
  }
  add(whole, { at, granted, measured });
  for (const name of series.keys()) {
    if (!seen.has(name)) {
      series.delete(name);
    }
  }
}

function add(name: string, sample: Sample): void {
  let samples = series.get(name);
  if (samples === undefined) {
    samples = [];
    series.set(name, samples);
  }
  samples.push(sample);
  if (samples.length > mostSamples) {
    samples.shift();
  }
}

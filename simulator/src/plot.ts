// SPDX-License-Identifier: Apache-2.0

import { lastLoad } from "./run.ts";
import type { Curve } from "./summary.ts";

const size = {
  panelWidth: 720,
  panelHeight: 300,
  left: 60,
  right: 24,
  title: 34,
  gap: 86,
  bottom: 56,
} as const;

/** Upper bound on the width of a character of the legend, px: the legend is drawn in whatever font the reader has. */
const characterWidth = 7.5;

const legendMark = { space: 14, width: 18, gap: 6, row: 18 } as const;

/** Distinguishable with any colour vision (the palette of Okabe and Ito). */
const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"] as const;

/** Dashes distinguish curves beyond the number of colours. */
const dashes = ["", "6 3", "2 2", "8 3 2 3"] as const;

/** Loads at which policies differ: the pool is nearly full. */
const fullLoad = 90;

interface Range {
  readonly from: number;
  readonly to: number;
}

interface Panel {
  readonly title: string;
  readonly of: (curve: Curve) => readonly number[];
  readonly load: Range;
  readonly percent: Range;
  /** The y coordinate of its upper edge. */
  readonly top: number;
}

/**
 * Allocation and fragmentation over load, and allocation once more where the pool is nearly full: one line for each curve, as
 * a complete SVG document.
 */
export function plotSvg(curves: readonly Curve[], title: string): string {
  const allocation = (curve: Curve): readonly number[] => curve.allocation;
  const all: Range = { from: 0, to: 100 };
  const whole: Range = { from: 0, to: lastLoad };
  const full: Range = { from: fullLoad, to: lastLoad };
  const contents: readonly Omit<Panel, "top">[] = [
    { title: "GPUs allocated, % of all", of: allocation, load: whole, percent: all },
    {
      title: `GPUs allocated, % of all, from ${fullLoad} % asked for`,
      of: allocation,
      load: full,
      percent: rangeOf(curves.flatMap((curve) => allocation(curve).slice(full.from, full.to + 1))),
    },
    { title: "Fragments, % of idle GPU", of: (curve) => curve.fragmentation, load: whole, percent: all },
  ];
  const panels = contents.map(
    (content, row): Panel => ({ ...content, top: size.title + 36 + row * (size.panelHeight + size.gap) }),
  );
  const labels = curves.map(({ policy, trace }) => `${policy} ${trace}`);
  const legendWidth =
    legendMark.space +
    legendMark.width +
    legendMark.gap +
    Math.ceil(Math.max(0, ...labels.map(({ length }) => length)) * characterWidth);
  const plotRight = size.left + size.panelWidth;
  const width = Math.max(plotRight + legendWidth + size.right, size.left + Math.ceil(title.length * 9));
  const legendBottom = panels[0] === undefined ? 0 : panels[0].top + labels.length * legendMark.row;
  const height = Math.max(
    size.title + 36 + panels.length * (size.panelHeight + size.gap) - size.gap + size.bottom,
    legendBottom + size.bottom,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="${size.left}" y="24" font-size="15">${escape(title)}</text>`,
    ...panels.flatMap((panel) => [
      ...axes(panel),
      ...curves.map((curve, position) => line(panel, curve, position)),
    ]),
    ...labels.flatMap((label, position) => legend(label, position, panels[0]?.top ?? 0)),
    "</svg>",
    "",
  ].join("\n");
}

/**
 * Whole multiples of a step that contain all values, at most 100 and at least 0; the whole range of percentages if there is
 * none.
 */
function rangeOf(values: readonly number[]): Range {
  const known = values.filter((value) => Number.isFinite(value));
  if (known.length === 0) return { from: 0, to: 100 };
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const step = stepOf(Math.max(most - least, 2));
  return {
    from: Math.max(0, Math.floor(least / step) * step),
    to: Math.min(100, Math.max(Math.ceil(most / step) * step, Math.floor(least / step) * step + step)),
  };
}

/** A step of 1, 2 or 5 times a power of ten that divides a span into four to ten parts. */
function stepOf(span: number): number {
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const parts = span / 4 / power;
  return power * (parts >= 5 ? 5 : parts >= 2 ? 2 : 1);
}

function ticks({ from, to }: Range): number[] {
  const step = stepOf(to - from);
  const count = Math.floor((to - from) / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, position) => rounded(from + position * step));
}

function axes(panel: Panel): string[] {
  const right = size.left + size.panelWidth;
  const bottom = panel.top + size.panelHeight;
  return [
    `<text x="${size.left}" y="${panel.top - 12}" font-weight="bold">${escape(panel.title)}</text>`,
    ...ticks(panel.percent).flatMap((percent) => {
      const y = yOf(panel, percent);
      return [
        `<line x1="${size.left}" y1="${y}" x2="${right}" y2="${y}" stroke="#dddddd"/>`,
        `<text x="${size.left - 8}" y="${y + 4}" text-anchor="end">${percent}</text>`,
      ];
    }),
    ...ticks(panel.load).map(
      (load) => `<text x="${xOf(panel, load)}" y="${bottom + 18}" text-anchor="middle">${load}</text>`,
    ),
    `<text x="${size.left + size.panelWidth / 2}" y="${bottom + 38}" text-anchor="middle">GPUs asked for so far, % of all</text>`,
  ];
}

function line(panel: Panel, curve: Curve, position: number): string {
  const points = panel
    .of(curve)
    .flatMap((value, load) =>
      Number.isFinite(value) && load >= panel.load.from && load <= panel.load.to
        ? `${xOf(panel, load)},${yOf(panel, value)}`
        : [],
    );
  return `<polyline points="${points.join(" ")}" fill="none" stroke-width="1.5" ${strokeOf(position)}/>`;
}

function legend(label: string, position: number, top: number): string[] {
  const x = size.left + size.panelWidth + legendMark.space;
  const y = top + 12 + position * legendMark.row;
  return [
    `<line x1="${x}" y1="${y - 4}" x2="${x + legendMark.width}" y2="${y - 4}" stroke-width="3" ${strokeOf(position)}/>`,
    `<text x="${x + legendMark.width + legendMark.gap}" y="${y}">${escape(label)}</text>`,
  ];
}

function strokeOf(position: number): string {
  const colour = colours[position % colours.length] ?? colours[0];
  const dash = dashes[Math.floor(position / colours.length) % dashes.length] ?? "";
  return `stroke="${colour}"${dash === "" ? "" : ` stroke-dasharray="${dash}"`}`;
}

function xOf({ load: { from, to } }: Panel, load: number): number {
  return rounded(size.left + ((load - from) / (to - from)) * size.panelWidth);
}

function yOf({ percent: { from, to }, top }: Panel, percent: number): number {
  const within = Math.min(to, Math.max(from, percent));
  return rounded(top + size.panelHeight - ((within - from) / (to - from)) * size.panelHeight);
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

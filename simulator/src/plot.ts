// SPDX-License-Identifier: Apache-2.0

import { lastLoad } from "./run.ts";
import type { Curve } from "./summary.ts";

const size = { width: 960, height: 420, left: 60, right: 190, top: 40, bottom: 50, gap: 60 } as const;

/** Distinguishable with any colour vision (the palette of Okabe and Ito). */
const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"] as const;

const panels = [
  { title: "GPUs allocated, % of all", of: (curve: Curve) => curve.allocation },
  { title: "Fragments, % of idle GPU", of: (curve: Curve) => curve.fragmentation },
] as const;

/** Allocation and fragmentation over load, one line for each curve, as a complete SVG document. */
export function plotSvg(curves: readonly Curve[], title: string): string {
  const panelHeight = size.height - size.top - size.bottom;
  const height = size.top + panels.length * (panelHeight + size.gap) + size.bottom;
  const body = panels.flatMap(({ title: name, of }, row) => {
    const top = size.top + row * (panelHeight + size.gap);
    return [
      ...axes(name, top, panelHeight),
      ...curves.map((curve, position) => line(of(curve), colourOf(position), top, panelHeight)),
      ...(row === 0 ? curves.flatMap((curve, position) => legend(curve, position, top)) : []),
    ];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${size.width}" height="${height}" viewBox="0 0 ${size.width} ${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="${size.left}" y="22" font-size="15">${escape(title)}</text>`,
    ...body,
    `<text x="${size.left}" y="${height - 14}">GPUs asked for so far, % of all</text>`,
    "</svg>",
    "",
  ].join("\n");
}

function axes(name: string, top: number, height: number): string[] {
  const right = size.width - size.right;
  const lines = [`<text x="${size.left}" y="${top - 6}">${escape(name)}</text>`];
  for (let percent = 0; percent <= 100; percent += 20) {
    const y = yOf(percent, top, height);
    lines.push(
      `<line x1="${size.left}" y1="${y}" x2="${right}" y2="${y}" stroke="#dddddd"/>`,
      `<text x="${size.left - 8}" y="${y + 4}" text-anchor="end">${percent}</text>`,
    );
  }
  for (let load = 0; load <= lastLoad; load += 10) {
    const x = xOf(load);
    lines.push(`<text x="${x}" y="${top + height + 16}" text-anchor="middle">${load}</text>`);
  }
  return lines;
}

function line(values: readonly number[], colour: string, top: number, height: number): string {
  const points = values.flatMap((value, load) =>
    Number.isFinite(value) ? `${xOf(load)},${yOf(value, top, height)}` : [],
  );
  return `<polyline points="${points.join(" ")}" fill="none" stroke="${colour}" stroke-width="1.5"/>`;
}

function legend(curve: Curve, position: number, top: number): string[] {
  const x = size.width - size.right + 14;
  const y = top + 12 + position * 18;
  return [
    `<line x1="${x}" y1="${y - 4}" x2="${x + 18}" y2="${y - 4}" stroke="${colourOf(position)}" stroke-width="3"/>`,
    `<text x="${x + 24}" y="${y}">${escape(`${curve.policy} ${curve.trace}`)}</text>`,
  ];
}

function colourOf(position: number): string {
  return colours[position % colours.length] ?? colours[0];
}

function xOf(load: number): number {
  return rounded(size.left + (load / lastLoad) * (size.width - size.left - size.right));
}

function yOf(percent: number, top: number, height: number): number {
  return rounded(top + height - (Math.min(100, Math.max(0, percent)) / 100) * height);
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

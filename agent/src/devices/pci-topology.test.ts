// SPDX-License-Identifier: Apache-2.0

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readPciTopology } from "./pci-topology.ts";

let sys: string;

beforeEach(() => {
  sys = mkdtempSync(join(tmpdir(), "millpond-pci-"));
  mkdirSync(join(sys, "bus"));
});

afterEach(() => rmSync(sys, { recursive: true }));

/** A device as the kernel shows it: a directory below its bridges, and a link to it. */
function add(path: readonly string[], numaNode: string): void {
  const directory = join(sys, ...path);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "numa_node"), `${numaNode}\n`);
  symlinkSync(directory, join(sys, "bus", path.at(-1) ?? ""));
}

const bus = (): string => join(sys, "bus");

test("devices below one switch have the address of its upper side in common", () => {
  const above = ["pci0000:15", "0000:15:01.0", "0000:16:00.0"];
  add([...above, "0000:17:00.0", "0000:18:00.0"], "0");
  add([...above, "0000:17:01.0", "0000:19:00.0"], "0");
  expect(readPciTopology("0000:18:00.0", bus())).toEqual({ numaNode: "0", pcieSwitch: "0000:16:00.0" });
  expect(readPciTopology("00000000:19:00.0", bus()).pcieSwitch).toBe("0000:16:00.0");
});

test("a device below a root port has no switch, and a machine of one socket no node", () => {
  add(["pci0000:00", "0000:00:01.0", "0000:01:00.0"], "-1");
  expect(readPciTopology("0000:01:00.0", bus())).toEqual({ numaNode: "", pcieSwitch: "" });
});

test("what the kernel does not show is not known", () => {
  const nothing = { numaNode: "", pcieSwitch: "" };
  expect(readPciTopology("0000:99:00.0", bus())).toEqual(nothing);
  expect(readPciTopology("", bus())).toEqual(nothing);
  expect(readPciTopology("../../etc", bus())).toEqual(nothing);
});

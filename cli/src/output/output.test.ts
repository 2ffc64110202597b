// SPDX-License-Identifier: Apache-2.0

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { CardFiguresSchema } from "@millpond/api";
import { expect, test } from "vitest";
import { boundClaim, device, event, node, now, pendingClaim, session } from "../../test/samples.ts";
import { renderSmi } from "../commands/views/smi.ts";
import { memoryErrors, xids } from "./columns.ts";
import { parseDeviceQuery, renderDeviceList, renderDeviceQuery } from "./device-query.ts";
import { claimKind, deviceKind, eventKind, type Kind, nodeKind, sessionKind } from "./kinds.ts";
import { renderObject } from "./resources.ts";
import { layOut } from "./table.ts";

/** The golden file of a kind: the output of `get -o json`. Changing it changes the contract. */
async function expectGolden<T>(kind: Kind<T>, items: readonly T[]): Promise<void> {
  const text = renderObject(`${kind.title}List`, { items: items.map(kind.toJson) });
  await expect(text).toMatchFileSnapshot(`golden/${kind.word}s.json`);
}

function tableOf<T>(kind: Kind<T>, items: readonly T[], isWide: boolean): string {
  const columns = kind.columns({ nowSeconds: now, isWide }).filter((column) => isWide || !column.isWide);
  return `\n${layOut(columns, items, { headers: true }).lines.join("\n")}\n`;
}

test("the JSON of every kind is as agreed", async () => {
  await expectGolden(nodeKind, [node]);
  await expectGolden(deviceKind, [device]);
  await expectGolden(claimKind, [pendingClaim, boundClaim]);
  await expectGolden(sessionKind, [session]);
  await expectGolden(eventKind, [event]);
});

test("tables line up", () => {
  expect(tableOf(nodeKind, [node], false)).toMatchInlineSnapshot(`
    "
    NAME     STATUS           DEVICES   VGPUS   SESSIONS   AGE
    node-a   Ready,Cordoned         1       1          1   1d1h
    "
  `);
  expect(tableOf(deviceKind, [device], false)).toMatchInlineSnapshot(`
    "
    NAME       MODEL                   MEMORY   COMPUTE   VGPUS   SESSIONS   STATUS
    node-a/1   Software GPU   512 MiB / 4 GiB       50%       1          1   Unhealthy
    "
  `);
  expect(tableOf(claimKind, [pendingClaim, boundClaim], false)).toMatchInlineSnapshot(`
    "
    NAME         STATE     GPUS    MEMORY   COMPUTE   QUEUE   NODE     SESSIONS   AGE    OWNER
    train-a      Pending      2       50%      auto   -       -               0   1m5s   ann@host-1:17 python
    claim-7f3a   Bound        1   512 MiB       50%   -       node-a          1   12s    bob@host-2:4711 vectoradd
    "
  `);
  expect(tableOf(claimKind, [pendingClaim, boundClaim], true)).toMatchInlineSnapshot(`
    "
    NAME         STATE     GPUS    MEMORY   COMPUTE   QUEUE   NODE     SESSIONS   AGE    OWNER                       POSITION   LEFT   LEASE   DEVICES    TENANT   USER   PRIORITY   GANG   REASON
    train-a      Pending      2       50%      auto   -       -               0   1m5s   ann@host-1:17 python               3   -      20s     -          -        -             0   -      no node has two devices free
    claim-7f3a   Bound        1   512 MiB       50%   -       node-a          1   12s    bob@host-2:4711 vectoradd          -   -      30s     GPU-0123   -        -             0   -      -
    "
  `);
  expect(tableOf(sessionKind, [session], false)).toMatchInlineSnapshot(`
    "
    NAME       CLAIM        DEVICES    STATE        PID   PROGRAM               MEMORY   AGE
    5e0c0d4e   claim-7f3a   node-a/1   Connected   4712   vectoradd   12 MiB / 512 MiB   11s
    "
  `);
  expect(tableOf(eventKind, [event], false)).toMatchInlineSnapshot(`
    "
    AGE   KIND         SUBJECT            MESSAGE
    12s   ClaimBound   claim/claim-7f3a   bound to node-a/1
    "
  `);
});

test("smi lists devices, and writes the CSV of nvidia-smi", () => {
  expect(renderDeviceList([node])).toBe("GPU node-a/1: Software GPU (UUID: GPU-0123)\n");
  const csv = (names: string, format: string, nodes = [node]): string =>
    renderDeviceQuery(parseDeviceQuery(names.split(","), format.split(",")), nodes);
  expect(csv("node,index,memory.total,memory.used,utilization.gpu,driver_version", "csv")).toBe(
    "node, index, memory.total [MiB], memory.used [MiB], utilization.gpu [%], driver_version\n" +
      "node-a, 1, 4096 MiB, 12 MiB, [N/A], [N/A]\n",
  );
  const busy = { ...node, devices: [{ ...device, usedComputePercent: 37 }] };
  expect(csv("utilization.gpu,cordoned,health", "csv,noheader,nounits", [busy])).toBe(
    "37, true, unhealthy\n",
  );
  const card = create(CardFiguresSchema, {
    temperatureCelsius: 41,
    powerMilliwatts: 90_250,
    smClockMhz: 1980,
    performanceState: 0,
    eccUncorrectedErrors: 3,
    pendingRowRemaps: 1,
  });
  const hot = { ...node, devices: [{ ...device, card }] };
  const errors = [
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
    "remapped_rows.pending",
  ];
  expect(csv(errors.join(","), "csv,noheader", [hot])).toBe("[N/A], 3, Yes\n");
  expect(csv("temperature.gpu,power.draw,power.limit,clocks.sm,pstate", "csv", [hot])).toBe(
    "temperature.gpu, power.draw [W], power.limit [W], clocks.sm [MHz], pstate\n" +
      "41, 90.25 W, [N/A], 1980 MHz, P0\n",
  );
  expect(() => csv("fan.speed", "csv")).toThrow(
    /no field "fan.speed". There are index, .*MILLPOND_E_INVALID/,
  );
  expect(() => csv("index", "xml")).toThrow(/--format: "xml" is not one of csv, noheader, nounits/);
});

test("errors of a card's memory and its Xids are told as far as its driver reports them", () => {
  const told = (figures: MessageInitShape<typeof CardFiguresSchema>) => {
    const failing = { ...device, card: create(CardFiguresSchema, figures) };
    return [memoryErrors(failing), xids(failing)];
  };
  expect(told({})).toEqual(["-", "-"]);
  expect(told({ eccCorrectedErrors: 0, eccUncorrectedErrors: 0, remappedRows: 0, xids: 0 })).toEqual([
    "0 corrected, 0 uncorrected",
    "0",
  ]);
  const broken = { eccCorrectedErrors: 7, eccUncorrectedErrors: 2, remappedRows: 1, pendingRowRemaps: 1 };
  expect(told({ ...broken, xids: 4, lastXid: 63 })).toEqual([
    "7 corrected, 2 uncorrected, 1 row replaced, more to be replaced at the next reset",
    "4, the last was 63",
  ]);
});

test("smi shows devices and the sessions that use them", () => {
  const picture = { version: "0.1.0", controller: "http://127.0.0.1:7170" };
  expect(`\n${renderSmi({ ...picture, nodes: [node], sessions: [session] })}`).toMatchInlineSnapshot(`
    "
    +-------------------------------------------------------------------------------------------------------------+
    | Millpond 0.1.0   http://127.0.0.1:7170                                          1 node, 1 device, 1 session |
    +----------+--------------+------+-------+------------------------+-------------------------------+-----------+
    | Device   | Name         | CUDA | vGPUs | Compute used / granted | Memory used / granted / total | State     |
    +==========+==============+======+=======+========================+===============================+===========+
    | node-a/1 | Software GPU | 13.0 |     1 |                - / 50% |      12 MiB / 512 MiB / 4 GiB | Unhealthy |
    +----------+--------------+------+-------+------------------------+-------------------------------+-----------+
    +----------+------+-----------+------------+-----+---------+--------------------------------------------------+
    | Device   |  PID | Program   | Claim      | Via | Compute |                              Memory used / limit |
    +==========+======+===========+============+=====+=========+==================================================+
    | node-a/1 | 4712 | vectoradd | claim-7f3a | shm |     50% |                                 12 MiB / 512 MiB |
    +----------+------+-----------+------------+-----+---------+--------------------------------------------------+
    "
  `);
  const card = create(CardFiguresSchema, {
    temperatureCelsius: 41,
    powerMilliwatts: 90_250,
    powerLimitMilliwatts: 700_000,
  });
  const hot = { ...node, devices: [{ ...device, card }] };
  expect(`\n${renderSmi({ ...picture, nodes: [hot], sessions: [] })}`).toMatchInlineSnapshot(`
    "
    +----------------------------------------------------------------------------------------------------------------------------------+
    | Millpond 0.1.0   http://127.0.0.1:7170                                                              1 node, 1 device, 0 sessions |
    +----------+--------------+------+-------+------------+-------+------------------------+-------------------------------+-----------+
    | Device   | Name         | CUDA |  Temp |      Power | vGPUs | Compute used / granted | Memory used / granted / total | State     |
    +==========+==============+======+=======+============+=======+========================+===============================+===========+
    | node-a/1 | Software GPU | 13.0 | 41 °C | 90 / 700 W |     1 |                - / 50% |      12 MiB / 512 MiB / 4 GiB | Unhealthy |
    +----------+--------------+------+-------+------------+-------+------------------------+-------------------------------+-----------+
    +--------+-----+---------+-------+-----+---------+---------------------------------------------------------------------------------+
    | Device | PID | Program | Claim | Via | Compute |                                                             Memory used / limit |
    +========+=====+=========+=======+=====+=========+=================================================================================+
    | No running sessions found                                                                                                        |
    +----------------------------------------------------------------------------------------------------------------------------------+
    "
  `);
  expect(`\n${renderSmi({ ...picture, nodes: [], sessions: [] })}`).toMatchInlineSnapshot(`
    "
    +-----------------------------------------------------------------------------------------------+
    | Millpond 0.1.0   http://127.0.0.1:7170                         0 nodes, 0 devices, 0 sessions |
    +--------+------+------+-------+------------------------+-------------------------------+-------+
    | Device | Name | CUDA | vGPUs | Compute used / granted | Memory used / granted / total | State |
    +========+======+======+=======+========================+===============================+=======+
    | No device: no agent has joined the pool                                                       |
    +-----------------------------------------------------------------------------------------------+
    +--------+-----+---------+-------+-----+---------+----------------------------------------------+
    | Device | PID | Program | Claim | Via | Compute |                          Memory used / limit |
    +========+=====+=========+=======+=====+=========+==============================================+
    | No running sessions found                                                                     |
    +-----------------------------------------------------------------------------------------------+
    "
  `);
});

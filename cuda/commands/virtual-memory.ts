// SPDX-License-Identifier: Apache-2.0
/** Address ranges, and the memory mapped into them: the hand-written commands. */
import type { Command } from "../schema.ts";

export const virtualMemoryCommands: readonly Command[] = [
  {
    name: "VmReserve",
    doc: "Reserves an address range, at `hint` if that is not 0 and the range is free.",
    left: "books",
    fields: [
      ["bytes", "number"],
      ["alignment", "number"],
      ["hint", "place"],
    ],
    reply: { fields: [["address", "u64"]] },
  },
  {
    name: "VmUnreserve",
    doc: "Frees the address range of a VmReserve.",
    left: "books",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
  },
  {
    name: "VmGranularity",
    doc: "Returns the granularity of the size and address of mapped memory, for properties as in CUmemAllocationProp.",
    left: "books",
    fields: [
      ["device", "i32"],
      ["option", "i32"],
      ["compression", "u32"],
      ["rdma", "u32"],
      ["usage", "u32"],
    ],
    reply: { fields: [["bytes", "u64"]] },
  },
  {
    name: "VmCreate",
    doc: "Creates memory without an address, within the session's limit. `memory`: its number, chosen by the client.",
    left: "books",
    fields: [
      ["memory", "handle"],
      ["bytes", "number"],
      ["device", "i32"],
      ["compression", "u32"],
      ["rdma", "u32"],
      ["usage", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "VmRelease",
    doc: "Releases memory of VmCreate. It stays as long as it is mapped.",
    left: "books",
    fields: [["memory", "handle"]],
  },
  {
    name: "VmMap",
    doc: "Maps memory at reserved addresses.",
    left: "books",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
      ["offset", "number"],
      ["memory", "handle"],
    ],
  },
  {
    name: "VmUnmap",
    doc: "Unmaps whole mappings when the device has finished the work that precedes this command.",
    left: "books",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
  },
  {
    name: "VmSetAccess",
    doc: "Sets which devices may access whole mappings. `access`: the ordinal and the CUmemAccess_flags of each device (i32 each).",
    left: "books",
    fields: [
      ["address", "address"],
      ["size", "number"],
    ],
    tails: ["access"],
  },
  {
    name: "VmShare",
    doc: "Returns a handle by which other sessions of the claim open the memory of a VmCreate.",
    left: "trace",
    fields: [["memory", "handle"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "VmOpen",
    doc: "Opens memory of another session's VmCreate by its handle, under a number that the client chooses. VmRelease closes it.",
    left: "trace",
    fields: [
      ["memory", "handle"],
      ["handle", { bytes: 64, of: "numbers" }],
    ],
    reply: {
      fields: [
        ["bytes", "u64"],
        ["device", "i32"],
      ],
    },
  },
];

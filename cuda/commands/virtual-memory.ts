// SPDX-License-Identifier: Apache-2.0
/** Address ranges, and the memory mapped into them: the hand-written commands. */
import type { Command } from "../schema.ts";

export const virtualMemoryCommands: readonly Command[] = [
  {
    name: "VmReserve",
    doc: "Reserves addresses, at `hint` if it is not 0 and they are free there.",
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
    doc: "The end of a VmReserve.",
    left: "books",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
  },
  {
    name: "VmGranularity",
    doc: "What sizes and addresses of mapped memory are multiples of. The properties as in CUmemAllocationProp.",
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
    doc: "Memory without an address, within the session's limit. `memory`: a number of the client's.",
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
    doc: "The end of a VmCreate; what is mapped stays until it is unmapped.",
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
    doc: "Unmaps whole mappings, when the device is done with what it was given before.",
    left: "books",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
  },
  {
    name: "VmSetAccess",
    doc: "Who may touch whole mappings. `access`: per device its ordinal and CUmemAccess_flags (i32 each).",
    left: "books",
    fields: [
      ["address", "address"],
      ["size", "number"],
    ],
    tails: ["access"],
  },
  {
    name: "VmShare",
    doc: "A handle by which other sessions of the claim open the memory of a VmCreate.",
    left: "trace",
    fields: [["memory", "handle"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "VmOpen",
    doc: "Memory of another session's VmCreate, by its handle, under a number of the client's; ended with VmRelease.",
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

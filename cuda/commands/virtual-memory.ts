// SPDX-License-Identifier: Apache-2.0
/** Addresses, and memory that is mapped at them: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

export const virtualMemoryCommands: readonly Command[] = [
  {
    name: "VmReserve",
    doc: "Reserves addresses, at `hint` if it is not 0 and they are free there.",
    left: "books",
    fields: [
      ["bytes", "u64"],
      ["alignment", "u64"],
      ["hint", "u64"],
    ],
    reply: { fields: [["address", "u64"]] },
  },
  {
    name: "VmUnreserve",
    doc: "The end of a VmReserve.",
    left: "books",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
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
      ["memory", "u64"],
      ["bytes", "u64"],
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
    fields: [["memory", "u64"]],
  },
  {
    name: "VmMap",
    doc: "Maps memory at reserved addresses.",
    left: "books",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
      ["offset", "u64"],
      ["memory", "u64"],
    ],
  },
  {
    name: "VmUnmap",
    doc: "Unmaps whole mappings, when the device is done with what it was given before.",
    left: "books",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
    ],
  },
  {
    name: "VmSetAccess",
    doc: "Who may touch whole mappings. `access`: per device its ordinal and CUmemAccess_flags (i32 each).",
    left: "books",
    fields: [
      ["address", "u64"],
      ["size", "u64"],
    ],
    tails: ["access"],
  },
  {
    name: "VmShare",
    doc: "A handle by which other sessions of the claim open the memory of a VmCreate.",
    left: "trace",
    fields: [["memory", "u64"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "VmOpen",
    doc: "Memory of another session's VmCreate, by its handle, under a number of the client's; ended with VmRelease.",
    left: "trace",
    fields: [
      ["memory", "u64"],
      ["handle", { bytes: 64 }],
    ],
    reply: {
      fields: [
        ["bytes", "u64"],
        ["device", "i32"],
      ],
    },
  },
];

// SPDX-License-Identifier: Apache-2.0
/** Arrays, their planes, levels and memory, and the texture and surface objects over them: the hand-written commands. */
import type { Command } from "../schema.ts";

export const arrayCommands: readonly Command[] = [
  {
    name: "ArrayCreate",
    doc: "An array, or with `levels` a mipmapped one, of the current device, within the session's limit.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["width", "number"],
      ["height", "number"],
      ["depth", "number"],
      ["format", "i32"],
      ["channels", "u32"],
      ["flags", "u32"],
      ["levels", "u32"],
      ["elementBytes", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "ArrayDestroy",
    doc: "The end of an array, when the device is done with it. A level ends with its mipmapped array.",
    left: "books",
    fields: [["handle", "handle"]],
  },
  {
    name: "ArrayLevel",
    doc: "A level of a mipmapped array, as an array.",
    left: "books",
    fields: [
      ["mipmapped", "handle"],
      ["level", "u32"],
      ["handle", "handle"],
    ],
    reply: {
      fields: [
        ["width", "u64"],
        ["height", "u64"],
        ["depth", "u64"],
      ],
    },
  },
  {
    name: "ArrayPlane",
    doc: "A plane of an array of a format with several, as an array.",
    left: "trace",
    fields: [
      ["array", "handle"],
      ["plane", "u32"],
      ["handle", "handle"],
    ],
    reply: {
      fields: [
        ["width", "u64"],
        ["height", "u64"],
        ["depth", "u64"],
        ["format", "i32"],
        ["channels", "u32"],
      ],
    },
  },
  {
    name: "ArrayRequirements",
    doc: "What an array takes of a device's memory, as the driver says.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["device", "i32"],
    ],
    reply: {
      fields: [
        ["bytes", "u64"],
        ["alignment", "u64"],
      ],
    },
  },
  {
    name: "ArrayMap",
    doc: "Maps memory to parts of sparse arrays, or unmaps it. `entries`: CUarrayMapInfo records, in which the array, the memory and the devices are those of the session.",
    left: "trace",
    fields: [["stream", "handle"]],
    tails: ["entries"],
    reply: { fields: [] },
  },
  {
    name: "TextureCreate",
    doc: "A texture or surface object. Of the resource, `handle` is the array, mipmapped array or address; the structures as they lie in memory, `view` only with `hasView`.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["isSurface", "u32"],
      ["hasView", "u32"],
      ["resource", { bytes: 144, of: "CUDA_RESOURCE_DESC" }],
      ["texture", { bytes: 104, of: "CUDA_TEXTURE_DESC" }],
      ["view", { bytes: 112, of: "CUDA_RESOURCE_VIEW_DESC" }],
    ],
    reply: { fields: [["object", "u64"]] },
  },
  {
    name: "TextureDestroy",
    doc: "The end of a texture or surface object, when the device is done with it.",
    left: "books",
    fields: [["object", "handle"]],
  },
];

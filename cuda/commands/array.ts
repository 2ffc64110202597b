// SPDX-License-Identifier: Apache-2.0
/** Arrays, their planes, levels and memory, and the texture and surface objects over them: the hand-written commands. */
import type { Command } from "../schema.ts";

export const arrayCommands: readonly Command[] = [
  {
    name: "ArrayCreate",
    doc: "Creates an array on the current device, or a mipmapped array if `levels` is not 0, within the session's limit.",
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
    ],
    reply: { fields: [] },
  },
  {
    name: "ArrayDestroy",
    doc: "Destroys an array when the device is done with it. A level is destroyed with its mipmapped array.",
    left: "books",
    fields: [["handle", "handle"]],
  },
  {
    name: "ArrayLevel",
    doc: "Returns a level of a mipmapped array as an array.",
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
    doc: "Returns a plane of an array with a multi-planar format as an array.",
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
    doc: "Returns how much memory of a device an array needs, as the driver reports it.",
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
    doc: "Maps memory to parts of sparse arrays, or unmaps it. `entries`: CUarrayMapInfo records, in which arrays, memory and devices are given by the session's own handles and ordinals.",
    left: "trace",
    fields: [["stream", "handle"]],
    tails: ["entries"],
    reply: { fields: [] },
  },
  {
    name: "TextureCreate",
    doc: "Creates a texture or surface object. `handle`: the array, mipmapped array or address of the resource. The descriptors are copied as they lie in memory; `view` counts only if `hasView` is set.",
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
    doc: "Destroys a texture or surface object when the device is done with it.",
    left: "books",
    fields: [["object", "handle"]],
  },
];

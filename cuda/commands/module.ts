// SPDX-License-Identifier: Apache-2.0
/** Images, modules and libraries: the hand-written commands. */
import { jitReply } from "./jit.ts";
import type { Command } from "../schema.ts";

export const moduleCommands: readonly Command[] = [
  {
    name: "ImageOffer",
    doc: "Asks whether the worker's host has an image, by its SHA-256; if so, no parts follow.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["total", "number"],
      ["hash", { bytes: 32, of: "numbers" }],
    ],
    reply: { fields: [["known", "u32"]] },
  },
  {
    name: "ImagePart",
    doc: "Sends a piece of the image of `total` bytes that a later ModuleLoad or LinkAdd with this handle uses.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["offset", "number"],
      ["total", "number"],
    ],
    tails: ["data"],
  },
  {
    name: "ModuleLoad",
    doc: "Loads the image whose parts have arrived. `kind`: 0 module, 1 library. `options`: JitOptionRecord; `places`: the offsets of the fatbins in the image if there are several (u64 each). `isKept` 1: the client can send the image again. A failure returns the logs, too.",
    left: { makes: "handle" },
    fields: [
      ["handle", "handle"],
      ["kind", "u32"],
      ["isKept", "u32"],
    ],
    tails: ["options", "places"],
    reply: jitReply,
  },
  {
    name: "ModuleUnload",
    doc: "Unloads a module or library with everything that was obtained from it.",
    left: "books",
    fields: [["handle", "handle"]],
  },
  {
    name: "LibraryGetModule",
    doc: "Returns the module of a library in the current context, under a new handle.",
    left: { makes: "handle" },
    fields: [
      ["library", "handle"],
      ["handle", "handle"],
    ],
    reply: { fields: [] },
  },
  {
    name: "FunctionNames",
    doc: "Returns the names of the functions of a module or the kernels of a library, each terminated by a zero byte.",
    left: "books",
    fields: [["owner", "handle"]],
    reply: { fields: [["count", "u32"]], tails: ["names"] },
  },
  {
    name: "GetFunction",
    doc: "Returns a function of a module or kernel of a library with what launches need: offset and size of each parameter (u32 each), and the attributes by number (i32 each).",
    left: { makes: "handle" },
    fields: [
      ["owner", "handle"],
      ["handle", "handle"],
    ],
    tails: ["name"],
    reply: { fields: [["paramCount", "u32"]], tails: ["layout", "attributes"] },
  },
  {
    name: "GetGlobal",
    doc: "Returns address and size of a variable of a module or library, and whether it is managed. `managed` 1: only of a managed variable.",
    left: "books",
    fields: [
      ["owner", "handle"],
      ["managed", "u32"],
    ],
    tails: ["name"],
    reply: {
      fields: [
        ["address", "u64"],
        ["bytes", "u64"],
        ["managed", "u32"],
      ],
    },
  },
];

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
    doc: "A piece of the image of `total` bytes that a ModuleLoad or LinkAdd of this handle will use.",
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
    doc: "Loads the image whose parts have arrived. `kind`: 0 module, 1 library. `options`: JitOptionRecord; `places`: where in the image its fatbins begin, when there are several (u64 each). `isKept`: 1 where the client can send the image again. The logs come back with a failure too.",
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
    doc: "The end of a module or library and of all that came from it.",
    left: "books",
    fields: [["handle", "handle"]],
  },
  {
    name: "LibraryGetModule",
    doc: "The module that a library is in the current context, under a new handle.",
    left: { makes: "handle" },
    fields: [
      ["library", "handle"],
      ["handle", "handle"],
    ],
    reply: { fields: [] },
  },
  {
    name: "FunctionNames",
    doc: "The names of the functions of a module or the kernels of a library, each ended by a zero.",
    left: "books",
    fields: [["owner", "handle"]],
    reply: { fields: [["count", "u32"]], tails: ["names"] },
  },
  {
    name: "GetFunction",
    doc: "A function of a module or kernel of a library, with all that launches need to know: per parameter offset and size (u32 each), and the attributes by number (i32 each).",
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
    doc: "Address and size of a variable of a module or library. `managed` 1: only of one that is managed. The reply says whether it is.",
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

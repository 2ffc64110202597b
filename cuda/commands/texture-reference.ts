// SPDX-License-Identifier: Apache-2.0
/** Texture and surface references: the hand-written commands. */
import type { Command } from "../schema.ts";

export const textureReferenceCommands: readonly Command[] = [
  {
    name: "GetReference",
    doc: "The texture or surface reference, as the kind of `handle` says, of that name in a module. It ends with the module.",
    left: "trace",
    fields: [
      ["owner", "handle"],
      ["handle", "handle"],
    ],
    tails: ["name"],
    reply: { fields: [] },
  },
  {
    name: "TextureReferenceDestroy",
    doc: "The end of a reference that cuTexRefCreate made.",
    left: "trace",
    fields: [["handle", "handle"]],
  },
];

// SPDX-License-Identifier: Apache-2.0
/** Texture and surface references: the hand-written commands. */
import type { Command } from "../schema.ts";

export const textureReferenceCommands: readonly Command[] = [
  {
    name: "GetReference",
    doc: "Returns the texture or surface reference of that name in a module; the kind of `handle` decides which. It is destroyed with the module.",
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
    doc: "Destroys a reference of cuTexRefCreate.",
    left: "trace",
    fields: [["handle", "handle"]],
  },
];

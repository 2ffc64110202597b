// SPDX-License-Identifier: Apache-2.0

// The members of the documents of `millpond apply`, for people.

import { claimFieldNames, claimFieldSpecs } from "@millpond/api";

export interface DocumentMember {
  readonly name: string;
  readonly description: string;
  /** The corresponding option of `millpond run`; undefined: there is none. */
  readonly option?: string;
  readonly variable?: string;
  /** The default, in words or as a value. */
  readonly byDefault: string;
  readonly choices?: readonly string[];
  /** A sample value, as YAML. */
  readonly example?: string;
}

const name: DocumentMember = {
  name: "name",
  description: "Its name: 1 to 63 lower-case letters, digits and hyphens",
  byDefault: "required",
};
const limit: DocumentMember = {
  name: "limit",
  description: "Upper bound of all its claims together, in GPUs, percent of a device and bytes",
  byDefault: "none",
  example: "{gpus: 8, compute: 800, memory: 1Ti}",
};

export const documentMembers: Readonly<Record<"claim" | "queue" | "tenant", readonly DocumentMember[]>> = {
  claim: [
    name,
    {
      name: "lease",
      description: "How long it exists without being renewed by a program or a command",
      byDefault: "7d",
      example: "12h",
    },
    ...claimFieldNames.map((field): DocumentMember => {
      const { flags, env, description, choices, defaultText = "no" } = claimFieldSpecs[field];
      const more = choices === undefined ? {} : { choices };
      return { name: field, description, option: flags, variable: env, byDefault: defaultText, ...more };
    }),
  ],
  queue: [
    name,
    { name: "parent", description: "The queue that it is a part of", byDefault: "none", example: "research" },
    {
      name: "weight",
      description: "Weight among its siblings for capacity beyond the guarantees, 1 to 10000",
      byDefault: "1",
      example: "3",
    },
    {
      name: "borrowing",
      description: "Which claims may use idle capacity beyond the guarantee",
      byDefault: "any",
      choices: ["any", "preemptible", "none"],
    },
    {
      name: "guaranteed",
      description: "Capacity that it gets before others get more than theirs",
      byDefault: "none",
      example: "{gpus: 8}",
    },
    limit,
  ],
  tenant: [
    name,
    limit,
    {
      name: "userLimit",
      description:
        "Upper bound for each of its users that `users` does not name; a user is the name of a token",
      byDefault: "none",
      example: "{gpus: 2}",
    },
    {
      name: "users",
      description: "Upper bounds of single users; an empty one means no limit",
      byDefault: "none",
      example: "{ann: {gpus: 4}, ci: {}}",
    },
  ],
};

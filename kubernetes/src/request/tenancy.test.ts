// SPDX-License-Identifier: Apache-2.0

import type { V1Namespace } from "@kubernetes/client-node";
import { errorCodeOf, isName } from "@millpond/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { makeResourceNames } from "./resource-names.ts";
import { checkQueue, type Tenancy, tenancyOf } from "./tenancy.ts";

const names = makeResourceNames("gpu.example.org");
const queues = ["default", "vision", "speech"] as const;
const word = fc.constantFrom<string>(...queues, "", "Vision", "a b", "-");
const annotations = fc.record(
  {
    "gpu.example.org/tenant": word,
    "gpu.example.org/queue": word,
    "gpu.example.org/queues": fc.array(word, { minLength: 1, maxLength: 3 }).map((list) => list.join(", ")),
    "millpond.dev/queues": word,
  },
  { requiredKeys: [] },
);
const namespaces = fc.array(annotations, { minLength: 1, maxLength: 4 }).map((list) =>
  list.map(
    (each, index): V1Namespace => ({
      metadata: { name: `ns-${index}`, annotations: each },
    }),
  ),
);

const codeOf = (attempt: () => unknown): string | undefined => {
  try {
    attempt();
    return undefined;
  } catch (error) {
    return errorCodeOf(error);
  }
};
const listOf = (namespace: V1Namespace): string[] | undefined =>
  namespace.metadata?.annotations?.["gpu.example.org/queues"]?.split(",").map((each) => each.trim());

test("a namespace may use what its annotations open, and one with a wrong annotation nothing", () => {
  const seen = { open: 0, closed: 0, wrong: 0 };
  fc.assert(
    fc.property(namespaces, (all) => {
      for (const each of all) {
        const { annotations: own = {}, name } = each.metadata ?? {};
        const { "gpu.example.org/tenant": tenant, "gpu.example.org/queue": queue } = own;
        const list = listOf(each);
        const isWrong =
          [tenant, queue, ...(list ?? [])].some((text) => text !== undefined && !isName(text)) ||
          (queue !== undefined && list?.includes(queue) === false);
        if (isWrong) {
          expect(codeOf(() => tenancyOf(names, each, all))).toBe("MILLPOND_E_FORBIDDEN");
          seen.wrong += 1;
          continue;
        }
        const tenancy: Tenancy = tenancyOf(names, each, all);
        expect(tenancy.tenant).toBe(tenant ?? name);
        expect(codeOf(() => checkQueue(tenancy, tenancy.queue))).toBeUndefined();
        for (const wanted of queues) {
          const ofOthers = all.some((other) => other !== each && listOf(other)?.includes(wanted) === true);
          const isOpen =
            list === undefined
              ? !ofOthers || wanted === "default" || wanted === queue
              : list.includes(wanted);
          expect(codeOf(() => checkQueue(tenancy, wanted))).toBe(isOpen ? undefined : "MILLPOND_E_FORBIDDEN");
          seen[isOpen ? "open" : "closed"] += 1;
        }
      }
    }),
    { numRuns: 2000 },
  );
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(30);
});

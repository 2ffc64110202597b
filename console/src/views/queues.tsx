// SPDX-License-Identifier: Apache-2.0

import { Borrowing, type Queue } from "@millpond/api/browser";
import { quota } from "../parts/format.ts";
import { Awaited, Plain, Used, View } from "../parts/view.tsx";
import { queues } from "../state/calls.ts";
import { useWatch } from "../state/watch.ts";
import type { Texts } from "../texts/english.ts";
import { texts } from "../texts/texts.ts";

interface Branch {
  readonly queue: Queue;
  readonly depth: number;
}

/** Each queue below the one that it is a part of. */
function toTree(all: readonly Queue[], parent = "", depth = 0): Branch[] {
  return all.flatMap((queue) =>
    queue.parent === parent ? [{ queue, depth }, ...toTree(all, queue.name, depth + 1)] : [],
  );
}

/** The others may borrow anything. */
const borrowingWords: Readonly<Record<number, keyof Texts["borrowings"]>> = {
  [Borrowing.PREEMPTIBLE]: "preemptible",
  [Borrowing.NONE]: "none",
};

export function QueuesView() {
  const t = texts();
  const watched = useWatch("queues", async (signal) => (await queues.listQueues({}, { signal })).queues);
  return (
    <View title={t.views.queues} command="millpond get queues">
      <Awaited of={watched}>
        {(all) => (
          <Plain
            label={t.views.queues}
            heads={[t.name, t.used, t.guaranteed, t.limit, t.weight, t.borrowing, t.bound, t.waitingCount]}
          >
            {toTree(all).map(({ queue, depth }) => (
              <tr key={queue.name}>
                <th scope="row" style={{ paddingInlineStart: `${0.6 + depth * 1.4}rem` }}>
                  {queue.name}
                </th>
                <td>
                  <Used used={queue.used} limit={queue.limit} />
                </td>
                <td>{quota(queue.guaranteed) || "–"}</td>
                <td>{quota(queue.limit) || "–"}</td>
                <td>{queue.weight}</td>
                <td>{t.borrowings[borrowingWords[queue.borrowing] ?? "any"]}</td>
                <td>{queue.boundClaims}</td>
                <td>{queue.waitingClaims}</td>
              </tr>
            ))}
          </Plain>
        )}
      </Awaited>
    </View>
  );
}

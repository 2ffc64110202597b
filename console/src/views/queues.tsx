// SPDX-License-Identifier: Apache-2.0

import { borrowingWord, type Queue } from "@millpond/api/browser";
import { quota } from "../parts/format.ts";
import { Awaited, Plain, Used, View } from "../parts/view.tsx";
import { queues } from "../state/calls.ts";
import { type Me, mayAs } from "../state/login.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";
import { DeleteQueue, PutQueue } from "./queue-actions.tsx";

interface Branch {
  readonly queue: Queue;
  readonly depth: number;
}

/** Each queue below its parent. */
function toTree(all: readonly Queue[], parent = "", depth = 0): Branch[] {
  return all.flatMap((queue) =>
    queue.parent === parent ? [{ queue, depth }, ...toTree(all, queue.name, depth + 1)] : [],
  );
}

function borrowingText(queue: Queue): string {
  const words: Readonly<Record<string, string>> = texts().borrowings;
  return words[borrowingWord(queue.borrowing)] ?? texts().unknown;
}

export function QueuesView({ me }: { readonly me: Me }) {
  const t = texts();
  const watched = useWatch("queues", async (signal) => (await queues.listQueues({}, { signal })).queues);
  const isAdmin = mayAs(me, "admin");
  return (
    <View
      title={t.views.queues}
      command="millpond get queues"
      more={isAdmin && <PutQueue onDone={watched.again} />}
    >
      <Awaited of={watched}>
        {(all) => (
          <Plain
            label={t.views.queues}
            heads={[
              t.name,
              t.used,
              t.guaranteed,
              t.limit,
              t.weight,
              t.borrowing,
              t.bound,
              t.waitingCount,
              ...(isAdmin ? [t.actionsTitle] : []),
            ]}
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
                <td>{borrowingText(queue)}</td>
                <td>{queue.boundClaims}</td>
                <td>{queue.waitingClaims}</td>
                {isAdmin && (
                  <td>
                    <div class="buttons">
                      <PutQueue queue={queue} onDone={watched.again} />
                      <DeleteQueue name={queue.name} onDone={watched.again} />
                    </div>
                  </td>
                )}
              </tr>
            ))}
          </Plain>
        )}
      </Awaited>
    </View>
  );
}

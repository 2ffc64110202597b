// SPDX-License-Identifier: Apache-2.0

import { type Claim, ClaimState, type Node } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
import { nameWord } from "../parts/shell.ts";
import { claims, pool } from "../state/calls.ts";
import type { Gpu } from "../state/nodes.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

/** For administrators only: the controller refuses others. */
export function NodeActions({ node, onDone }: { readonly node: Node; readonly onDone: () => void }) {
  const t = texts();
  const { name, cordoned } = node;
  const word = cordoned ? "uncordon" : "cordon";
  return (
    <div class="buttons">
      <Action
        label={t.actions[word]}
        title={`${t.actions[word]}: ${name}`}
        command={`millpond ${word} ${nameWord(name)}`}
        onDo={async ({ reason, headers }) => {
          await pool.cordonNode({ name, cordoned: !cordoned, reason }, { headers });
          onDone();
        }}
      >
        <p>{cordoned ? t.uncordonMeans : t.cordonMeans}</p>
      </Action>
      <Action
        label={t.actions.drain}
        title={`${t.actions.drain}: ${name}`}
        command={`millpond drain ${nameWord(name)}`}
        onDo={async ({ reason, headers }) => {
          await pool.drainNode({ name, reason }, { headers });
          onDone();
        }}
      >
        <p>{t.drainMeans}</p>
        <Victims node={name} />
      </Action>
    </div>
  );
}

/** Cordons or uncordons one GPU of a node. */
export function GpuAction({ gpu, onDone }: { readonly gpu: Gpu; readonly onDone: () => void }) {
  const t = texts();
  const { node, device } = gpu;
  const name = `${node.name}/${device.index}`;
  const word = device.cordoned ? "uncordon" : "cordon";
  return (
    <Action
      label={t.actions[word]}
      accessibleName={`${t.actions[word]}: ${name}`}
      title={`${t.actions[word]}: ${name}`}
      command={`millpond ${word} ${nameWord(name)}`}
      onDo={async ({ reason, headers }) => {
        const request = { name: node.name, deviceUuid: device.uuid, cordoned: !device.cordoned, reason };
        await pool.cordonNode(request, { headers });
        onDone();
      }}
    >
      <p>{device.cordoned ? t.uncordonMeans : t.cordonMeans}</p>
    </Action>
  );
}

/** The claims that a drain would preempt at present. */
function Victims({ node }: { readonly node: string }) {
  const t = texts();
  const { data } = useWatch("claims", async (signal) => (await claims.listClaims({}, { signal })).claims);
  if (data === undefined) {
    return <p class="quiet">{t.loading}</p>;
  }
  const victims = data.filter(
    ({ state, allocation }) => state === ClaimState.BOUND && allocation?.node === node,
  );
  return victims.length === 0 ? (
    <p class="quiet">{t.noVictims}</p>
  ) : (
    <ul class="victims">
      {victims.map((claim) => (
        <li key={claim.name}>{victimText(claim)}</li>
      ))}
    </ul>
  );
}

function victimText({ name, owner, openSessions, graceSeconds }: Claim): string {
  const t = texts();
  return [name, owner, t.sessionCount(openSessions), t.notice(graceSeconds)]
    .filter((part) => part !== "")
    .join(" · ");
}

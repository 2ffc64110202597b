// SPDX-License-Identifier: Apache-2.0

import type { ComponentChildren } from "preact";
import { type Claim, ClaimState, type ExplainClaimResponse, formatDuration } from "@millpond/api/browser";
import { age, bytes, dateTime, percent } from "../parts/format.ts";
import { Link } from "../parts/link.tsx";
import { nameWord } from "../parts/shell.ts";
import { ClaimBadge, classWord } from "../parts/states.tsx";
import { Awaited, Fields, Labels, View } from "../parts/view.tsx";
import { claims } from "../state/calls.ts";
import { controllerNow } from "../state/clock.ts";
import { addressOf } from "../state/place.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";
import { ClaimActions } from "./claim-actions.tsx";
import { askedOf } from "./claims.tsx";
import { EventList } from "./events.tsx";
import { SessionTable } from "./sessions.tsx";

export function ClaimView({ name }: { readonly name: string }) {
  const t = texts();
  const watched = useWatch(
    `claim ${name}`,
    async (signal) => await claims.explainClaim({ name }, { signal }),
  );
  return (
    <View
      title={`${t.claim} ${name}`}
      command={`millpond why ${nameWord(name)}`}
      more={
        watched.data?.claim !== undefined && (
          <ClaimActions claim={watched.data.claim} onDone={watched.again} />
        )
      }
    >
      <Awaited of={watched}>
        {(explanation) =>
          explanation.claim !== undefined && (
            <>
              <Why explanation={explanation} claim={explanation.claim} />
              <Granted claim={explanation.claim} />
              <h2>{t.details}</h2>
              <Details claim={explanation.claim} />
            </>
          )
        }
      </Awaited>
      <h2>{t.views.sessions}</h2>
      <SessionTable claim={name} />
      <h2>{t.views.events}</h2>
      <EventList subject={`claim/${name}`} />
    </View>
  );
}

function Why({ explanation, claim }: { readonly explanation: ExplainClaimResponse; readonly claim: Claim }) {
  const t = texts();
  const { factDetails, queueLength } = explanation;
  return (
    <section class="panel why" aria-label={t.why}>
      <p class="why-line">
        <ClaimBadge state={claim.state} /> <strong>{claim.reason}</strong>
      </p>
      {claim.state === ClaimState.PENDING && (
        <Fields
          of={[
            [t.waits, age(claim.waitingSince)],
            [t.position, t.positionOf(claim.queuePosition, queueLength, claim.queue)],
            [t.waitsFor, <WaitsFor explanation={explanation} />],
            [t.expected, expected(explanation.expectedAt)],
          ]}
        />
      )}
      {factDetails.length > 0 && (
        <>
          <h2>{t.facts}</h2>
          <Fields of={factDetails.map(({ subject, reason }) => [subject, reason?.text ?? ""] as const)} />
        </>
      )}
    </section>
  );
}

function expected(at: bigint): string {
  const t = texts();
  return at === 0n
    ? t.unknown
    : t.within(formatDuration(Math.max(0, Number(at) - Math.floor(controllerNow() / 1000))));
}

function WaitsFor({
  explanation: { waitsFor, waitsForHidden },
}: {
  readonly explanation: ExplainClaimResponse;
}) {
  const t = texts();
  if (waitsFor.length + waitsForHidden === 0) {
    return <>{t.unknown}</>;
  }
  return (
    <>
      {waitsFor.map((name) => (
        <Link to={addressOf("claims", name)} key={name} class="item">
          {name}
        </Link>
      ))}
      {waitsForHidden > 0 && t.waitsForHidden(waitsForHidden)}
    </>
  );
}

function Granted({ claim: { allocation } }: { readonly claim: Claim }) {
  const t = texts();
  if (allocation === undefined) {
    return null;
  }
  return (
    <section class="panel">
      <h2>{t.virtualGpus}</h2>
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">GPU</th>
            <th scope="col">{t.where}</th>
            <th scope="col">{t.memory}</th>
            <th scope="col">{t.share}</th>
          </tr>
        </thead>
        <tbody>
          {allocation.devices.map(({ uuid, memoryBytes, computePercent }) => (
            <tr key={uuid}>
              <th scope="row">{uuid}</th>
              <td>
                <Link to={addressOf("nodes", allocation.node)}>{allocation.node}</Link>
              </td>
              <td>{bytes(memoryBytes)}</td>
              <td>{computePercent === 0 ? t.bestEffort : percent(computePercent)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Details({ claim }: { readonly claim: Claim }) {
  const t = texts();
  const fields: (readonly [string, ComponentChildren])[] = [
    [t.gpus, String(claim.gpus)],
    [t.asked, askedOf(claim)],
    [t.serviceClass, classWord(claim.serviceClass)],
    [t.queue, claim.queue],
    [t.tenant, claim.tenant],
    [t.priority, String(claim.priority)],
    [t.owner, claim.owner],
    [t.created, dateTime(claim.createdAt)],
  ];
  const times = [
    [t.boundSince, claim.boundAt],
    [t.takenAt, claim.preemptAt],
    [t.lease, claim.leaseExpiresAt],
    [t.ended, claim.endedAt],
  ] as const;
  for (const [title, at] of times) {
    if (at !== 0n) {
      fields.push([title, dateTime(at)]);
    }
  }
  if (Object.keys(claim.labels).length > 0) {
    fields.push([t.labels, <Labels of={claim.labels} />]);
  }
  return <Fields of={fields} />;
}

// SPDX-License-Identifier: Apache-2.0

import { type Claim, ClaimState } from "@millpond/api/browser";
import { age, bytes, percent } from "../parts/format.ts";
import { ClaimBadge, claimStateWord, classWord } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, View } from "../parts/view.tsx";
import { claims } from "../state/calls.ts";
import { addressOf, setQuery, usePlace } from "../state/place.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";
import { SubmitClaim } from "./claim-submit.tsx";

/** The requested size of each vGPU. */
export function askedOf({ memoryBytes, memoryPercent, computePercent, exclusive }: Claim): string {
  const t = texts();
  const memory = memoryBytes > 0n ? bytes(memoryBytes) : memoryPercent > 0 ? percent(memoryPercent) : "";
  if (exclusive || memory === "") {
    return t.wholeDevice;
  }
  return computePercent === 0 ? memory : `${memory}, ${percent(computePercent)}`;
}

const filterable = {
  pending: ClaimState.PENDING,
  bound: ClaimState.BOUND,
  dormant: ClaimState.DORMANT,
  released: ClaimState.RELEASED,
  failed: ClaimState.FAILED,
} as const;

type StateName = keyof typeof filterable;
const stateNames = Object.keys(filterable) as readonly StateName[];

function hasEnded({ state }: Claim): boolean {
  return state === ClaimState.RELEASED || state === ClaimState.FAILED;
}

export function ClaimsView() {
  const t = texts();
  const { query } = usePlace();
  const chosen = stateNames.find((name) => name === query.get("state"));
  const includeEnded = chosen === "released" || chosen === "failed" || query.get("ended") === "1";
  const watched = useWatch(`claims ${includeEnded}`, async (signal) => {
    const answer = await claims.listClaims({ includeEnded }, { signal });
    return answer.claims;
  });
  const columns: Column<Claim>[] = [
    { id: "name", title: t.name, width: "minmax(10rem, 1fr)", value: ({ name }) => name },
    {
      id: "state",
      title: t.state,
      width: "7rem",
      value: ({ state }) => claimStateWord(state),
      cell: ({ state }) => <ClaimBadge state={state} />,
    },
    {
      id: "why",
      title: `${t.where} / ${t.why}`,
      width: "minmax(22rem, 3fr)",
      value: ({ allocation, reason }) => reason || (allocation?.node ?? ""),
    },
    { id: "gpus", title: t.gpus, width: "4.5rem", isNumber: true, value: ({ gpus }) => gpus },
    { id: "asked", title: t.asked, width: "9rem", value: askedOf },
    {
      id: "class",
      title: t.serviceClass,
      width: "7rem",
      value: ({ serviceClass }) => classWord(serviceClass),
    },
    { id: "queue", title: t.queue, width: "7rem", value: ({ queue }) => queue },
    { id: "tenant", title: t.tenant, width: "7rem", value: ({ tenant }) => tenant },
    { id: "owner", title: t.owner, width: "minmax(8rem, 1fr)", value: ({ owner }) => owner },
    {
      id: "sessions",
      title: t.sessions,
      width: "6rem",
      isNumber: true,
      value: ({ openSessions }) => openSessions,
    },
    {
      id: "age",
      title: t.age,
      width: "5rem",
      isNumber: true,
      value: ({ createdAt }) => -Number(createdAt),
      cell: ({ createdAt }) => age(createdAt),
    },
  ];
  const controls = (
    <>
      <label>
        <span class="quiet">{t.state}</span>
        <select
          value={chosen ?? ""}
          onChange={({ currentTarget }) => setQuery({ state: currentTarget.value })}
        >
          <option value="">{t.all}</option>
          {stateNames.map((name) => (
            <option value={name} key={name}>
              {t.states[name]}
            </option>
          ))}
        </select>
      </label>
      <label>
        <input
          type="checkbox"
          checked={includeEnded}
          onChange={({ currentTarget }) => setQuery({ ended: currentTarget.checked ? "1" : "" })}
        />
        <span class="quiet">{t.showEnded}</span>
      </label>
    </>
  );
  return (
    <View
      title={t.views.claims}
      command={`millpond get claims${includeEnded ? " --all" : ""}`}
      more={<SubmitClaim />}
    >
      <Awaited of={watched}>
        {(all) => (
          <Table
            label={t.views.claims}
            items={all.filter(
              (claim) =>
                (includeEnded || !hasEnded(claim)) &&
                (chosen === undefined || claim.state === filterable[chosen]),
            )}
            columns={columns}
            addressOf={({ name }) => addressOf("claims", name)}
            controls={controls}
          />
        )}
      </Awaited>
    </View>
  );
}

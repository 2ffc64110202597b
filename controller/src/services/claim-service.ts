// SPDX-License-Identifier: Apache-2.0

import type { KeyObject } from "node:crypto";
import { create, equals } from "@bufbuild/protobuf";
import {
  type Claim,
  ClaimSchema,
  type ClaimService,
  millpondError,
  parseClaimVariables,
  parseName,
  toClaimMessage,
} from "@millpond/api";
import type { ServiceMethods } from "../handlers.ts";
import {
  createClaim,
  createTicket,
  releaseClaim,
  requireClaim,
  resizeClaim,
  waitClaim,
  yieldClaim,
} from "../claims.ts";
import { callerOf, hideNames, scopeTenant, type Sight, sightOf } from "../callers.ts";
import { claimsByArrival, toClaim, waitingPositions } from "../convert.ts";
import { explainClaim } from "../explain.ts";
import { isLive, type Pool } from "../pool.ts";
import type { ClaimRecord } from "../store/store.ts";
import { checkClaim, checkRange, checkSizes, checkTold, cleanText } from "../validate.ts";

const maxWaitSeconds = 60;

export function makeClaimService(pool: Pool, ticketKey: KeyObject): ServiceMethods<typeof ClaimService> {
  const show = (claim: ClaimRecord, sees: Sight, positions?: ReadonlyMap<string, number>) => {
    const shown = toClaim(pool, claim, positions);
    return { ...shown, reason: hideNames(pool, shown.reason, sees) };
  };
  return {
    async createClaim({ claim, noWait, variables }, context) {
      const caller = callerOf(context);
      const asked = claim === undefined ? undefined : withVariables(claim, variables);
      const scoped =
        asked === undefined ? undefined : { ...asked, tenant: scopeTenant(caller, asked.tenant) };
      const record = await createClaim(pool, checkClaim(scoped), { noWait });
      return { claim: show(record, sightOf(caller)) };
    },

    async waitClaim({ name, knownVersion, timeoutSeconds, wake, toldModels, toldHost }, context) {
      const sees = sightOf(callerOf(context));
      checkRange(timeoutSeconds, "timeoutSeconds", 0, maxWaitSeconds);
      const record = await waitClaim(pool, claimName(name), {
        // A version that is too large for a number is none that this controller made.
        knownVersion: Number(knownVersion),
        timeoutMs: timeoutSeconds * 1000,
        wake,
        told: checkTold({ toldModels, toldHost }),
        signal: context.signal,
        sees,
      });
      return { claim: show(record, sees) };
    },

    async createTicket({ claim, clientHost, clientPid, program }, context) {
      const client = { host: cleanText(clientHost), pid: clientPid, program: cleanText(program) };
      return await createTicket(pool, ticketKey, claimName(claim), client, sightOf(callerOf(context)));
    },

    async releaseClaim({ name, requeue }, context) {
      await (requeue ? yieldClaim : releaseClaim)(pool, claimName(name), sightOf(callerOf(context)));
      return {};
    },

    async resizeClaim({ name, wait, ...asked }, context) {
      const sees = sightOf(callerOf(context));
      const sizes = checkSizes(asked);
      const record = await resizeClaim(pool, claimName(name), sizes, { wait, signal: context.signal, sees });
      return { claim: show(record, sees) };
    },

    async getClaim({ name }, context) {
      const sees = sightOf(callerOf(context));
      return { claim: show(requireClaim(pool, claimName(name), sees), sees) };
    },

    async explainClaim({ name }, context) {
      const sees = sightOf(callerOf(context));
      const { claim, expectedAt, nextReleaseAt, waitsFor, facts, ...rest } = await explainClaim(
        pool,
        claimName(name),
        sees,
      );
      return {
        ...rest,
        claim: show(claim, sees),
        waitsFor: [...waitsFor],
        facts: [...facts],
        expectedAt: BigInt(expectedAt),
        nextReleaseAt: BigInt(nextReleaseAt),
      };
    },

    async listClaims({ includeEnded }, context) {
      const sees = sightOf(callerOf(context));
      const positions = waitingPositions(pool);
      const claims = claimsByArrival(pool).filter((claim) => sees(claim) && (includeEnded || isLive(claim)));
      return { claims: claims.map((claim) => show(claim, sees, positions)) };
    },
  };
}

/** What the claim says, and what the variables of its program add. */
function withVariables(claim: Claim, variables: Readonly<Record<string, string>>): Claim {
  if (Object.keys(variables).length === 0) {
    return claim;
  }
  const values = parseClaimVariables(variables);
  if (values.gpus !== undefined || values.memory !== undefined || values.compute !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "variables say what the claim itself says: gpus, memory, compute",
    );
  }
  const { name, owner, leaseSeconds, sessionBound, clientHost } = claim;
  const sizes = { gpus: claim.gpus, memoryBytes: claim.memoryBytes, memoryPercent: claim.memoryPercent };
  const own = {
    ...sizes,
    computePercent: claim.computePercent,
    name,
    owner,
    leaseSeconds,
    sessionBound,
    clientHost,
  };
  if (!equals(ClaimSchema, create(ClaimSchema, own), claim)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "there are variables, but the claim asks for more than sizes itself",
    );
  }
  return { ...create(ClaimSchema, toClaimMessage(values)), ...own };
}

function claimName(name: string): string {
  if (name === "") {
    throw millpondError("MILLPOND_E_INVALID", "the request names no claim");
  }
  return parseName(name, "claim name");
}

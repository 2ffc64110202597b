// SPDX-License-Identifier: Apache-2.0

import { create, equals } from "@bufbuild/protobuf";
import {
  type Claim,
  ClaimSchema,
  type ClaimService,
  millpondError,
  parseClaimVariables,
  parseName,
  toClaimMessage,
  toReasonMessage,
} from "@millpond/api";
import type { CallContext, ServiceMethods } from "./service-methods.ts";
import { claimsByArrival, waitingPositions } from "../pool/claim-views.ts";
import { userOf } from "../domain/caller.ts";
import { type ClaimRecord, isLive } from "../domain/records.ts";
import {
  createClaim,
  prioritizeClaim,
  releaseClaim,
  requireClaim,
  resizeClaim,
  waitClaim,
  yieldClaim,
} from "../operations/claims.ts";
import { createTicket, viewClaim } from "../operations/tickets.ts";
import { mapInTurns } from "../auth/fairness/fair-turns.ts";
import type { KeyRing } from "../auth/key-ring.ts";
import type { ProgramTokens } from "../auth/program-tokens.ts";
import type { ClaimTokens } from "../auth/tokens.ts";
import { defaultTenantName } from "../domain/claim-spec.ts";
import { refuseReserved } from "../auth/reserved-claims.ts";
import { callerOf, mayKnowOf, scopeTenant, visibilityOf } from "../auth/visibility.ts";
import { toClaim } from "./to-proto.ts";
import { explainClaim } from "../operations/explain-claim.ts";
import { type Pool } from "../pool/pool.ts";
import {
  checkClaim,
  checkRange,
  checkSizes,
  checkTold,
  cleanText,
  maxPriority,
} from "../domain/validate-claim.ts";

const maxWaitSeconds = 60;

export interface ClaimCredentials {
  /** Signs tickets. */
  readonly keys: KeyRing;
  readonly claimTokens: ClaimTokens;
  readonly programTokens: ProgramTokens;
}

export function makeClaimService(
  pool: Pool,
  { keys, claimTokens, programTokens }: ClaimCredentials,
): ServiceMethods<typeof ClaimService> {
  const show = (claim: ClaimRecord, context: CallContext, positions?: ReadonlyMap<string, number>) =>
    toClaim(pool, claim, mayKnowOf(callerOf(context)), positions);
  return {
    async createClaim({ claim, noWait, variables }, context) {
      const caller = callerOf(context);
      const asked = claim === undefined ? undefined : withVariables(claim, variables);
      const scoped =
        asked === undefined ? undefined : { ...asked, tenant: scopeTenant(caller, asked.tenant) };
      const spec = { ...checkClaim(scoped), user: userOf(caller), program: caller.program ?? "" };
      refuseReserved(caller, spec);
      if (caller.program !== undefined && !spec.isSessionBound) {
        throw millpondError(
          "MILLPOND_E_FORBIDDEN",
          "the token of a program creates only claims that end with their session",
          { remedy: "Set sessionBound, or create the claim with a token of the role user." },
        );
      }
      const record = await createClaim(pool, spec, { noWait });
      return { claim: show(record, context) };
    },

    async waitClaim({ name, knownVersion, timeoutSeconds, wake, toldModels, toldHost }, context) {
      const sees = visibilityOf(callerOf(context));
      checkRange(timeoutSeconds, "timeoutSeconds", 0, maxWaitSeconds);
      const record = await waitClaim(pool, claimName(name), {
        // No controller issues a version beyond the range of a number.
        knownVersion: Number(knownVersion),
        timeoutMs: timeoutSeconds * 1000,
        wake,
        told: checkTold({ toldModels, toldHost }),
        signal: context.signal,
        sees,
      });
      return { claim: show(record, context) };
    },

    async createTicket({ claim, clientHost, clientPid, program, unopenedSession }, context) {
      const client = { host: cleanText(clientHost), pid: clientPid, program: cleanText(program) };
      return await createTicket(pool, keys, claimName(claim), {
        client,
        unopened: unopenedSession,
        signal: context.signal,
        sees: visibilityOf(callerOf(context)),
      });
    },

    async createClaimToken({ name }, context) {
      const claim = requireClaim(pool, claimName(name), visibilityOf(callerOf(context)));
      if (!isLive(claim)) {
        throw millpondError("MILLPOND_E_CLAIM_ENDED", `claim ${claim.name} has ended`);
      }
      return { secret: claimTokens.make(claim) };
    },

    async createProgramToken({ tenant }, context) {
      const caller = callerOf(context);
      const scope = scopeTenant(caller, tenant === "" ? "" : parseName(tenant, "tenant"));
      const { secret, expiresAt } = programTokens.make(caller, scope === "" ? defaultTenantName : scope);
      return { secret, expiresAt: BigInt(expiresAt ?? 0) };
    },

    viewClaim({ name }, context) {
      const sees = visibilityOf(callerOf(context));
      const { claim, pass } = viewClaim(pool, keys, claimName(name), sees);
      return {
        claim: show(claim, context),
        ...(pass !== undefined && { viewTicket: pass.ticket, agentUrl: pass.agentUrl }),
      };
    },

    async releaseClaim({ name, requeue }, context) {
      await (requeue ? yieldClaim : releaseClaim)(pool, claimName(name), visibilityOf(callerOf(context)));
      return {};
    },

    async resizeClaim({ name, wait, ...asked }, context) {
      const sees = visibilityOf(callerOf(context));
      const sizes = checkSizes(asked);
      const record = await resizeClaim(pool, claimName(name), sizes, { wait, signal: context.signal, sees });
      return { claim: show(record, context) };
    },

    async prioritizeClaim({ name, priority }, context) {
      const wanted = checkRange(priority, "priority", -maxPriority, maxPriority);
      const record = await prioritizeClaim(pool, claimName(name), wanted, visibilityOf(callerOf(context)));
      return { claim: show(record, context) };
    },

    async getClaim({ name }, context) {
      const sees = visibilityOf(callerOf(context));
      return { claim: show(requireClaim(pool, claimName(name), sees), context) };
    },

    async explainClaim({ name }, context) {
      const caller = callerOf(context);
      const sees = visibilityOf(caller);
      const { claim, expectedAt, nextReleaseAt, waitsFor, facts, ...rest } = await explainClaim(
        pool,
        claimName(name),
        sees,
      );
      const mayKnow = mayKnowOf(caller);
      const isProgram = caller.claim !== undefined || caller.program !== undefined;
      // A program can read its claim's data, but not the usage of its queue and tenant.
      const factDetails = facts
        .filter(({ isShared }) => !(isShared && isProgram))
        .map(({ subject, reason }) => ({
          subject,
          reason: toReasonMessage(reason, mayKnow),
        }));
      return {
        ...rest,
        claim: show(claim, context),
        waitsFor: [...waitsFor],
        waitsForHidden: isProgram && rest.obstacle === "quota" ? 0 : rest.waitsForHidden,
        facts: factDetails.map(({ subject, reason }) => `${subject}: ${reason.text}`),
        factDetails,
        expectedAt: BigInt(expectedAt),
        nextReleaseAt: BigInt(nextReleaseAt),
      };
    },

    async listClaims({ includeEnded, gang }, context) {
      const sees = visibilityOf(callerOf(context));
      const positions = waitingPositions(pool);
      const isAsked = (claim: ClaimRecord): boolean =>
        sees(claim) && (includeEnded || isLive(claim)) && (gang === "" || claim.gang === gang);
      const claims = claimsByArrival(pool).filter(isAsked);
      const shown = await mapInTurns(claims, context, ({ name }) => {
        // The current state: other calls have run since.
        const claim = pool.ledger.claims.get(name);
        return claim !== undefined && isAsked(claim) ? show(claim, context, positions) : undefined;
      });
      return { claims: shown.filter((claim) => claim !== undefined) };
    },
  };
}

/** The options of the claim, with those from the environment variables of its program. */
function withVariables(claim: Claim, variables: Readonly<Record<string, string>>): Claim {
  if (Object.keys(variables).length === 0) {
    return claim;
  }
  const values = parseClaimVariables(variables);
  if (values.gpus !== undefined || values.memory !== undefined || values.compute !== undefined) {
    throw millpondError("MILLPOND_E_INVALID", "variables repeat fields of the claim: gpus, memory, compute");
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
    throw millpondError("MILLPOND_E_INVALID", "a claim with variables has fields other than sizes");
  }
  return { ...create(ClaimSchema, toClaimMessage(values)), ...own };
}

function claimName(name: string): string {
  if (name === "") {
    throw millpondError("MILLPOND_E_INVALID", "the request names no claim");
  }
  return parseName(name, "claim name");
}

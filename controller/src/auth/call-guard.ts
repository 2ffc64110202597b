// SPDX-License-Identifier: Apache-2.0

// The path of every call, whatever its transport: authentication, authorization, audit, and the form of its errors.

import type { DescMethod } from "@bufbuild/protobuf";
import { ConnectError, type ContextValues, createContextKey } from "@connectrpc/connect";
import { millpondError, refusalFor } from "@millpond/api";
import type { Logger } from "pino";
import { inWords, mayCall, methodName, type RequiredRole, ruleOf, isScheduledFairly } from "./access.ts";
import type { CallLimits } from "./call-limits.ts";
import { FairTurns, type ReadTurns, turnsKey } from "./fairness/fair-turns.ts";
import { audited, AuditedCall } from "../state/audit.ts";
import { parseReason, reasonHeader } from "./change-reason.ts";
import type { Caller } from "../domain/caller.ts";
import { authorizationKey, passedOnHeader } from "./call-headers.ts";
import { callerKey, mayKnowOf } from "./visibility.ts";
import { isOidcToken } from "./oidc-tokens.ts";
import { parseBearer, type TokenVerifier } from "./tokens.ts";

/** Names in refused calls can be of any length. */
const maxSubjectLength = 256;

/** A call, before and after its message has been read. */
export interface GuardedCall {
  readonly method: DescMethod;
  readonly values: ContextValues;
  readonly signal: AbortSignal;
  readonly header: (name: string) => string | null;
}

/** The call's slot among those in flight; its transport disposes of it when the call ends. */
export const admissionKey = createContextKey<Disposable | undefined>(undefined, { description: "admission" });

export interface CallGuardOptions {
  readonly tokens: TokenVerifier;
  readonly limits: CallLimits;
  readonly log: Logger;
  /** Throws when only the leader can answer and this controller is a follower. */
  readonly requireLead: (what: string) => void;
  /** Records a call that changed nothing, or was refused. */
  readonly writeAudit: (call: AuditedCall, result: string) => Promise<void>;
}

export class CallGuard {
  readonly #options: CallGuardOptions;
  readonly #turns = new FairTurns();

  constructor(options: CallGuardOptions) {
    this.#options = options;
  }

  /** Admits a call before anything of its body is read. */
  async admit({ method, values, header }: Omit<GuardedCall, "signal">): Promise<void> {
    const { tokens, requireLead, writeAudit } = this.#options;
    const authorization = header("authorization");
    const caller = requireToken(authorization, tokens);
    const { role, changes, follower } = ruleOf(method);
    if (follower === undefined || header(passedOnHeader) !== null) {
      requireLead(methodName(method));
    }
    try {
      requireRole(caller, role, inWords(method));
    } catch (error) {
      if (changes !== undefined) {
        const what = methodName(method);
        await writeAudit(new AuditedCall(caller, { what, subject: "", why: "" }), "MILLPOND_E_FORBIDDEN");
      }
      throw error;
    }
    values.set(callerKey, caller);
    values.set(authorizationKey, authorization ?? "");
    await this.#limit(caller, method, values);
  }

  /** Before the body is read: calls beyond the limits cost no memory. */
  async #limit(caller: Caller, method: DescMethod, values: ContextValues): Promise<void> {
    const { limits, writeAudit } = this.#options;
    const isChange = ruleOf(method).changes !== undefined;
    try {
      values.set(admissionKey, await limits.enter(caller, isChange ? "change" : "call"));
    } catch (error) {
      if (isChange) {
        const call = new AuditedCall(caller, { what: methodName(method), subject: "", why: "" });
        await writeAudit(call, "MILLPOND_E_TOO_MANY_CALLS");
      }
      throw error;
    }
  }

  /** Runs an admitted call. Records its changes; logs unexpected errors. */
  async run<T>(call: GuardedCall, message: unknown, run: () => Promise<T>): Promise<T> {
    const { log } = this.#options;
    const method = `${call.method.parent.typeName}/${call.method.name}`;
    const startMs = performance.now();
    try {
      const answer = await this.#record(call, message, run);
      if (log.isLevelEnabled("debug")) {
        log.debug({ method, ms: Math.round(performance.now() - startMs) }, "call");
      }
      return answer;
    } catch (error) {
      if (error instanceof ConnectError || call.signal.aborted) {
        log.debug({ method, err: error }, "refused");
        // The caller is known only here.
        const caller = call.values.get(callerKey);
        throw caller === undefined ? error : refusalFor(error, mayKnowOf(caller));
      }
      log.error({ method, err: error }, "failed");
      throw millpondError("MILLPOND_E_INTERNAL", `${method} failed inside the controller`, { cause: error });
    }
  }

  async #record<T>(
    { method, values, header, signal }: GuardedCall,
    message: unknown,
    run: () => Promise<T>,
  ): Promise<T> {
    const { changes } = ruleOf(method);
    const caller = values.get(callerKey);
    if (caller !== undefined && isScheduledFairly(method)) {
      const read = async (turns: ReadTurns): Promise<T> => {
        values.set(turnsKey, turns);
        return await run();
      };
      return await this.#turns.take(caller, read, signal);
    }
    // Agents call constantly, and their calls are short.
    if (caller !== undefined && caller.role !== "agent") this.#turns.note(caller);
    if (changes === undefined || caller === undefined) {
      return await run();
    }
    const call = new AuditedCall(caller, {
      what: methodName(method),
      // The rule applies to exactly this method.
      subject: changes(message as never).slice(0, maxSubjectLength),
      why: parseReason(header(reasonHeader)),
    });
    return await audited(call, run, (result) => this.#options.writeAudit(call, result));
  }
}

/** @throws MILLPOND_E_FORBIDDEN, which names the missing role and discloses nothing about the object */
function requireRole(caller: Caller, required: RequiredRole, what: string): void {
  if (!mayCall(caller.role, required)) {
    throw millpondError(
      "MILLPOND_E_FORBIDDEN",
      `${what} needs a token of the role ${required}, this token has the role ${caller.role}`,
      { remedy: "Use a token of that role, or ask an administrator. `millpond whoami` shows yours." },
    );
  }
}

/** @throws MILLPOND_E_UNAUTHENTICATED */
export function requireToken(authorization: string | null | undefined, tokens: TokenVerifier): Caller {
  const token = parseBearer(authorization);
  if (token === undefined) {
    throw millpondError(
      "MILLPOND_E_UNAUTHENTICATED",
      "the request carries no bearer token, or a malformed one",
    );
  }
  const caller = tokens.verify(token);
  if (caller === "unknown") {
    throw millpondError("MILLPOND_E_UNAUTHENTICATED", "the controller does not know the request's token", {
      remedy:
        "Set MILLPOND_TOKEN to a token of `millpond token create`; one from the file user.token or agent.token is known only to the controller that wrote the file, and another controller may be the leader now.",
    });
  }
  if (caller === "expired") {
    const isLogin = isOidcToken(parseBearer(authorization) ?? "");
    throw millpondError("MILLPOND_E_UNAUTHENTICATED", "the request's token has expired", {
      remedy: isLogin
        ? "Log in again: `millpond login --oidc`."
        : "Ask an administrator for a new one: `millpond token create`.",
    });
  }
  return caller;
}

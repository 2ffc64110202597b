// SPDX-License-Identifier: Apache-2.0

import {
  create,
  type DescMethodUnary,
  type DescService,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { errorCodeOf, leaderHeader, millpondError } from "@millpond/api";
import { isTlsFailure, makePromptAgent } from "@millpond/platform";
import { methodName, ruleOf } from "../auth/access.ts";
import type { CallContext, ServiceMethods } from "./service-methods.ts";
import { authorizationKey, passedOnHeader } from "../auth/call-headers.ts";
import type { LeaderElector } from "../ha/leader-election.ts";

/** A leader that does not respond for this long is considered gone. */
const patienceMs = 5_000;

export interface LeaderOptions {
  readonly elector: Pick<LeaderElector, "isLeading" | "leaderUrl" | "requireLead">;
  /** Returns the authorities to trust, PEM; undefined: those of the machine. */
  readonly readCa: () => string | undefined;
}

type Answer = (request: Message, context: CallContext) => unknown;

/** The leader as followers call it: on behalf of a caller, forwarding its token. */
export class LeaderProxy {
  readonly #options: LeaderOptions;
  #connection: { readonly url: string; readonly transport: Transport } | undefined;

  constructor(options: LeaderOptions) {
    this.#options = options;
  }

  /**
   * The methods of a service. A follower forwards calls that only the leader can answer, and others if it
   * does not find an object that the leader may just have created.
   */
  standInFor<S extends DescService>(service: S, methods: ServiceMethods<S>): ServiceMethods<S> {
    const own = methods as unknown as Readonly<Record<string, Answer>>;
    const standIns = service.methods
      .filter((method) => ruleOf(method).follower !== undefined)
      .map((method): [string, Answer] => [
        method.localName,
        (request, context) =>
          this.#answer(method as DescMethodUnary, request, { context, own: own[method.localName] }),
      ]);
    return { ...own, ...Object.fromEntries(standIns) } as unknown as ServiceMethods<S>;
  }

  /** Calls a method that changes something, on behalf of a user, with the user's token. */
  async callAs<I extends DescMethodUnary>(
    method: I,
    request: MessageInitShape<I["input"]>,
    token: string,
  ): Promise<void> {
    await this.#send(method, create(method.input, request), {
      authorization: `Bearer ${token}`,
      signal: AbortSignal.timeout(patienceMs),
    });
  }

  async #answer(
    method: DescMethodUnary,
    request: Message,
    { context, own }: { readonly context: CallContext; readonly own: Answer | undefined },
  ): Promise<unknown> {
    if (this.#options.elector.isLeading) {
      return await own?.(request, context);
    }
    if (ruleOf(method).follower === "asks") {
      return await this.#ask(method, request, context);
    }
    try {
      return await own?.(request, context);
    } catch (error) {
      if (errorCodeOf(error) === "MILLPOND_E_NOT_FOUND") {
        return await this.#ask(method, request, context);
      }
      throw error;
    }
  }

  /** @throws the leader's error; MILLPOND_E_NOT_LEADER when there is no leader, or it does not respond */
  async #ask(method: DescMethodUnary, request: Message, { values, signal }: CallContext): Promise<Message> {
    return await this.#send(method, request, { authorization: values.get(authorizationKey), signal });
  }

  async #send(
    method: DescMethodUnary,
    request: Message,
    { authorization, signal }: { readonly authorization: string; readonly signal: AbortSignal },
  ): Promise<Message> {
    const { elector } = this.#options;
    const url = elector.leaderUrl;
    if (url === "") {
      elector.requireLead(methodName(method));
    }
    const header = { authorization, [passedOnHeader]: "1" };
    try {
      const { message } = await this.#transport(url).unary(method, signal, patienceMs, header, request);
      return message;
    } catch (error) {
      if (signal.aborted) {
        throw signal.reason;
      }
      throw explain(error, methodName(method), url);
    }
  }

  #transport(url: string): Transport {
    if (this.#connection?.url !== url) {
      const agent = makePromptAgent(url, { ca: this.#options.readCa() });
      const transport = createConnectTransport({ baseUrl: url, httpVersion: "1.1", nodeOptions: { agent } });
      this.#connection = { url, transport };
    }
    return this.#connection.transport;
  }
}

/** The error for the caller: the leader's, or one saying that the leader does not respond. */
function explain(error: unknown, what: string, url: string): ConnectError {
  const failure = ConnectError.from(error);
  const code = errorCodeOf(failure);
  if (code === "MILLPOND_E_UNAUTHENTICATED") {
    // The token is valid here, or the call would not have come this far.
    return millpondError(code, `the leader, at ${url}, does not know the request's token`, {
      remedy: "Use one of `millpond token create`: those in files are each controller's own.",
    });
  }
  if (code !== undefined) {
    const told = new ConnectError(failure.rawMessage, failure.code);
    told.details.push(...failure.details);
    const leader = failure.metadata.get(leaderHeader);
    if (leader !== null) {
      told.metadata.set(leaderHeader, leader);
    }
    return told;
  }
  const isUntrusted = isTlsFailure(failure);
  const silent = millpondError(
    "MILLPOND_E_NOT_LEADER",
    `only the leader serves ${what}; it is at ${url} and does not answer this controller: ${failure.rawMessage}`,
    {
      remedy: isUntrusted
        ? "Call it directly, and give its authority to this controller: --ca."
        : "Try again in a few seconds: if it has failed, another controller becomes the leader.",
      cause: error,
    },
  );
  silent.metadata.set(leaderHeader, url);
  return silent;
}

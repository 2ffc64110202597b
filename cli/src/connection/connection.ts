// SPDX-License-Identifier: Apache-2.0

import {
  type Client,
  Code,
  ConnectError,
  createClient,
  type Interceptor,
  type Transport,
} from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import {
  AccessService,
  ClaimService,
  errorCodeOf,
  type ErrorCode,
  millpondError,
  PoolService,
  QueueService,
  quote,
} from "@millpond/api";
import {
  explainTlsFailure,
  makeFailoverTransport,
  makePromptAgent,
  readAuthorities,
  splitAddresses,
  speaksNoTls,
} from "@millpond/platform";
import { type ContextFile, contextFilePath, readContexts } from "./context.ts";
import type { Endpoint } from "./endpoint.ts";
import { installedController } from "./installed-controller.ts";

export interface Connection extends Endpoint {
  readonly access: Client<typeof AccessService>;
  readonly claims: Client<typeof ClaimService>;
  readonly pool: Client<typeof PoolService>;
  readonly queues: Client<typeof QueueService>;
}

/** Time within which another controller, if there is one, becomes the leader. */
const takeoverMs = 10_000;

/** Time limits for a connection: shorter if there is another controller to try. */
const connectMs = { one: 10_000, several: 3_000 };

/** Time limit for calls that change nothing: a controller that takes longer is stuck. */
const answerMs = 20_000;

interface EndpointOptions {
  readonly controller: string | undefined;
  readonly token: string | undefined;
  /** Name of the context to use in place of the current one. */
  readonly context?: string | undefined;
  readonly reason?: string | undefined;
}

/**
 * Finds the controller: by option, then environment (both are in `options`), then the named context, then the current one,
 * then the controller that is installed on this host. The token of a context is sent only to the context's controller.
 *
 * @throws MILLPOND_E_NOT_CONFIGURED, MILLPOND_E_INVALID
 */
export function resolveEndpoint(options: EndpointOptions, environment: NodeJS.ProcessEnv): Endpoint {
  const path = contextFilePath(environment);
  const file =
    options.controller === undefined || options.token === undefined ? readContexts(path) : undefined;
  const name = options.context ?? file?.currentContext ?? "";
  const current = file?.contexts[name];
  const controller = options.controller ?? current?.controller;
  if (controller === undefined) {
    const installed = name === "" && options.token === undefined ? installedController() : undefined;
    if (installed !== undefined) return installed;
    throw notConfigured(file, name);
  }
  const isContext = options.controller === undefined;
  return {
    controller: checkUrls(controller, isContext ? path : "--controller or MILLPOND_CONTROLLER"),
    ca: readCa(environment) ?? (current?.controller === controller ? current.ca : undefined),
    token:
      options.token === undefined
        ? checkToken(current?.controller === controller ? current.token : "", path)
        : checkToken(options.token, "--token or MILLPOND_TOKEN"),
    source: isContext ? `context ${name} in ${path}` : "--controller or MILLPOND_CONTROLLER",
    ...(isContext && Object.keys(file?.contexts ?? {}).length > 1 ? { oneOfSeveral: name } : {}),
  };
}

function notConfigured(file: ContextFile | undefined, name: string) {
  const known = Object.keys(file?.contexts ?? {}).join(", ");
  if (known === "") {
    return millpondError("MILLPOND_E_NOT_CONFIGURED", "no controller is configured", {
      remedy: "Start a pool with `millpond up`, use `millpond login`, or set MILLPOND_CONTROLLER.",
    });
  }
  return millpondError(
    "MILLPOND_E_NOT_CONFIGURED",
    name === "" ? "no context is selected" : `there is no context ${quote(name)}`,
    { remedy: `Choose one of ${known}: \`millpond context use\`, --context or MILLPOND_CONTEXT.` },
  );
}

/** Makes clients for the controller; sends nothing yet. Their errors have MILLPOND_E_… codes. */
export function connect(endpoint: Endpoint): Connection {
  const identify: Interceptor = (next) => async (request) => {
    if (endpoint.token !== "") request.header.set("authorization", `Bearer ${endpoint.token}`);
    if (endpoint.reason !== undefined && endpoint.reason !== "") {
      request.header.set("millpond-reason", encodeURIComponent(endpoint.reason));
    }
    return await next(request);
  };
  const addresses = splitAddresses(endpoint.controller);
  const { ca } = endpoint;
  const limits = { connectMs: addresses.length > 1 ? connectMs.several : connectMs.one, ca };
  const transport = makeFailoverTransport({
    addresses,
    patienceMs: takeoverMs,
    isRepeatable: ({ name }) => /^(?:Get|List|Explain|Wait)/.test(name),
    answerMs,
    makeTransport: (address) =>
      inHouseForm(
        createConnectTransport({
          baseUrl: address,
          httpVersion: "1.1",
          interceptors: [identify],
          nodeOptions: { agent: makePromptAgent(address, limits) },
        }),
        { ...endpoint, controller: address },
      ),
  });
  return {
    ...endpoint,
    access: createClient(AccessService, transport),
    claims: createClient(ClaimService, transport),
    pool: createClient(PoolService, transport),
    queues: createClient(QueueService, transport),
  };
}

/** Wraps a transport so that its errors have codes and explanations; only at this point is it known that a call timed out. */
function inHouseForm(transport: Transport, endpoint: Endpoint): Transport {
  return {
    unary: async (method, signal, timeoutMs, header, input, contextValues) => {
      try {
        return await transport.unary(method, signal, timeoutMs, header, input, contextValues);
      } catch (error) {
        throw await explain(error, endpoint);
      }
    },
    // The API has no streaming method.
    stream: transport.stream.bind(transport),
  };
}

/** Finds the controller and makes clients for it. A command that makes changes prints the pool when there are several. */
export function openConnection(options: EndpointOptions): Connection {
  const endpoint = resolveEndpoint(options, process.env);
  const { oneOfSeveral, controller } = endpoint;
  const isNamed = options.context !== undefined;
  if ("reason" in options && oneOfSeveral !== undefined && !isNamed) {
    process.stderr.write(`millpond: in the pool ${oneOfSeveral} (${controller})\n`);
  }
  return connect({ ...endpoint, reason: options.reason });
}

const passing: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "MILLPOND_E_UNREACHABLE",
  "MILLPOND_E_SHUTTING_DOWN",
  "MILLPOND_E_NOT_LEADER",
  "MILLPOND_E_STORE_UNREACHABLE",
]);

/** Whether an error means that the controller could not handle the call, so that a retry may succeed. */
export function isUnreachable(error: unknown): boolean {
  const code = errorCodeOf(error);
  return code !== undefined && passing.has(code);
}

/** Whether there was no answer, or the connection broke, as while a controller restarts. */
export function isSilent(error: unknown): boolean {
  if (errorCodeOf(error) !== "MILLPOND_E_UNREACHABLE") return isUnreachable(error);
  return error instanceof ConnectError && error.cause instanceof ConnectError && isBroken(error.cause);
}

/** Refused or lost connections, names that cannot be resolved, and answers that do not arrive in time. */
function isBroken({ code, cause }: ConnectError): boolean {
  const isKnown = code === Code.Unavailable || code === Code.Aborted || code === Code.DeadlineExceeded;
  // The transport has codes for some system errors; others, such as EPIPE, are passed on as the cause.
  return isKnown || (cause instanceof Error && "syscall" in cause);
}

async function explain(error: unknown, endpoint: Endpoint): Promise<ConnectError> {
  const failure = ConnectError.from(error);
  const unknown = /^there is no method POST \/millpond\.v1\.(\w+\/\w+)/.exec(failure.rawMessage)?.[1];
  if (unknown !== undefined) {
    return millpondError(
      "MILLPOND_E_VERSION",
      `the controller at ${endpoint.controller} is of an older release than this command: it has no ${unknown}`,
      { remedy: "Upgrade the controller first, or use the command of its release.", cause: failure },
    );
  }
  if (errorCodeOf(failure) !== undefined || failure.code === Code.Canceled) return failure;
  if (failure.code === Code.DeadlineExceeded) {
    return millpondError(
      "MILLPOND_E_UNREACHABLE",
      `the controller at ${endpoint.controller} does not answer in time`,
      { cause: failure },
    );
  }
  if (endpoint.controller.startsWith("https:") && speaksNoTls(failure.rawMessage)) {
    return millpondError(
      "MILLPOND_E_UNREACHABLE",
      `the server at ${endpoint.controller} does not speak TLS`,
      {
        remedy: "Use http:// where that controller serves without TLS, or correct the address.",
        cause: failure,
      },
    );
  }
  const untrusted = await explainTlsFailure(failure, endpoint.controller);
  if (untrusted !== undefined) return untrusted;
  // An error without one of our codes did not come from a controller, or there was no answer.
  const why = isBroken(failure) ? failure.rawMessage : `it answers ${quote(failure.rawMessage)}`;
  return millpondError(
    "MILLPOND_E_UNREACHABLE",
    `there is no controller at ${endpoint.controller} (${endpoint.source}): ${why}`,
    { remedy: "Start a pool with `millpond up`, or correct the address.", cause: failure },
  );
}

/** Reads MILLPOND_CA, which is a file or its content. */
function readCa(environment: NodeJS.ProcessEnv): string | undefined {
  const path = environment["MILLPOND_CA"];
  return path === undefined || path === "" ? undefined : readAuthorities(path);
}

/** Refuses a text that is not a token. It is neither sent nor shown, because it may contain a token. */
function checkToken(text: string, source: string): string {
  if (!/^[\x21-\x7e]{0,4096}$/.test(text)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${source}: a token is one word of at most 4096 printable characters; this value is not`,
    );
  }
  return text;
}

/**
 * Checks one base URL, or several separated by commas, and normalizes them.
 *
 * @throws MILLPOND_E_INVALID
 */
export function checkUrls(text: string, source: string): string {
  const addresses = splitAddresses(text);
  for (const address of addresses.length === 0 ? [text] : addresses) {
    const url = URL.canParse(address) ? new URL(address) : undefined;
    if (url?.protocol !== "http:" && url?.protocol !== "https:") {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `${source}: ${quote(address)} is not a URL such as http://127.0.0.1:7170`,
      );
    }
    if (url.username !== "" || url.password !== "") {
      // Not shown: it may be a secret.
      throw millpondError(
        "MILLPOND_E_INVALID",
        `${source}: the URL of ${url.host} has a user or a password`,
        {
          remedy: "Omit them; a controller identifies users by their tokens: `millpond login`, or --token.",
        },
      );
    }
  }
  return addresses.join(",");
}

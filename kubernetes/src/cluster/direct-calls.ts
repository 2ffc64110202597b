// SPDX-License-Identifier: Apache-2.0

// The calls of the client library, by its own connections, without the web's `fetch` between them: its streams, headers and
// decompression took a quarter of the operator's time.

import {
  type HttpLibrary,
  IsomorphicFetchHttpLibrary,
  type RequestContext,
  ResponseContext,
  SelfDecodingBody,
  wrapHttpLibrary,
} from "@kubernetes/client-node";

/** Header `Accept` of calls whose answer is not read. */
export const metadataAlone = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/** API servers end calls after a minute themselves. */
const answerMs = 70_000;

const byFetch = new IsomorphicFetchHttpLibrary();
const direct = wrapHttpLibrary({ send: call });

export const directCalls: HttpLibrary = {
  // A server without TLS has no connections of the configuration's own.
  send: (request) => (request.getDispatcher() === undefined ? byFetch : direct).send(request),
};

async function call(request: RequestContext): Promise<ResponseContext> {
  const { origin, pathname, search } = new URL(request.getUrl());
  const headers = request.getHeaders();
  const body = request.getBody();
  if (body !== undefined && typeof body !== "string") throw new Error("a call has a body that is no text");
  const answer = await request.getDispatcher()?.request({
    origin,
    path: `${pathname}${search}`,
    method: request.getHttpMethod(),
    headers: { ...headers, "user-agent": "millpond" },
    body: body ?? null,
    signal: request.getSignal() ?? null,
    headersTimeout: answerMs,
    bodyTimeout: answerMs,
  });
  if (answer === undefined) throw new Error("a call has no connection");
  const isUnread = headers["Accept"] === metadataAlone && answer.statusCode < 300;
  if (isUnread) await answer.body.dump();
  // All of it now: a caller that looks at the status alone leaves a body behind, and its connection with it.
  const content = isUnread ? Buffer.from("{}") : Buffer.from(await answer.body.arrayBuffer());
  const fields = Object.entries(answer.headers).map(([name, value]) => [name, String(value)] as const);
  const text = new SelfDecodingBody(Promise.resolve(content));
  return new ResponseContext(answer.statusCode, Object.fromEntries(fields), text);
}

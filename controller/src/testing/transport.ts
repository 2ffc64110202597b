// SPDX-License-Identifier: Apache-2.0

import type { Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { makeFailoverTransport, splitAddresses } from "@millpond/platform";

/**
 * JSON over HTTP/1.1, with a token where one is given.
 *
 * @param urls Several: separated by commas.
 * @param options.ca The authority to trust, PEM. Default: those of the host.
 */
export function makeTransport(
  urls: string,
  token?: string,
  {
    patienceMs = 0,
    isRepeatable = false,
    ca,
  }: { readonly patienceMs?: number; readonly isRepeatable?: boolean; readonly ca?: string } = {},
): Transport {
  const makeOne = (baseUrl: string) =>
    createConnectTransport({
      baseUrl,
      httpVersion: "1.1",
      useBinaryFormat: false,
      ...(ca !== undefined && { nodeOptions: { ca } }),
      interceptors: [
        (next) => async (request) => {
          if (token !== undefined) {
            request.header.set("Authorization", `Bearer ${token}`);
          }
          return await next(request);
        },
      ],
    });
  return makeFailoverTransport({
    addresses: splitAddresses(urls),
    makeTransport: makeOne,
    patienceMs,
    isRepeatable: () => isRepeatable,
  });
}

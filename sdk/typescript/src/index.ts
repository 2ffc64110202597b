// SPDX-License-Identifier: Apache-2.0

export * from "./gen/api.ts";
export { Claim, type ClaimOptions } from "./claim.ts";
export { type CallOptions, MillpondError } from "./call.ts";
export { type Endpoint, Pool } from "./pool.ts";

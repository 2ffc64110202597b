// SPDX-License-Identifier: Apache-2.0

import { type AccessService, millpondError, parseName } from "@millpond/api";
import type { ServiceMethods } from "../handlers.ts";
import { createToken, listTokens, revokeToken } from "../access-tokens.ts";
import { callerOf } from "../callers.ts";
import type { Pool } from "../pool.ts";
import type { Store, TokenRecord } from "../store/store.ts";
import { checkRange } from "../validate.ts";

const defaultRecords = 100;
const maxRecords = 1000;

export function makeAccessService(pool: Pool, store: Store): ServiceMethods<typeof AccessService> {
  return {
    async createToken({ name, role, tenant, lifetimeSeconds }, context) {
      const { token, secret } = await createToken(pool, callerOf(context), {
        name: parseName(name, "token name"),
        role,
        tenant: tenant === "" ? "" : parseName(tenant, "tenant"),
        lifetimeSeconds: Number(lifetimeSeconds),
      });
      return { token: toToken(token), secret };
    },

    async listTokens(_request, context) {
      return { tokens: listTokens(pool, callerOf(context)).map(toToken) };
    },

    async revokeToken({ name }, context) {
      await revokeToken(pool, callerOf(context), parseName(name, "token name"));
      return {};
    },

    async listAudit({ after, limit }, context) {
      if (after > BigInt(Number.MAX_SAFE_INTEGER)) {
        throw millpondError("MILLPOND_E_INVALID", `after is ${after}, not the id of a record`);
      }
      const records = await store.listAudit({
        after: Number(after),
        tenant: callerOf(context).tenant,
        limit: checkRange(limit === 0 ? defaultRecords : limit, "limit", 1, maxRecords),
      });
      return { records: records.map((each) => ({ ...each, id: BigInt(each.id), at: BigInt(each.at) })) };
    },
  };
}

function toToken({ name, role, tenant, createdAt, expiresAt, createdBy }: TokenRecord) {
  return {
    name,
    role,
    tenant,
    createdAt: BigInt(createdAt),
    expiresAt: BigInt(expiresAt ?? 0),
    createdBy,
  };
}

// SPDX-License-Identifier: Apache-2.0

import { type AccessService, millpondError, parseName, parseNodeName, quote } from "@millpond/api";
import { parseBearer } from "../auth/tokens.ts";
import { authorizationKey } from "../auth/call-headers.ts";
import type { LoginSessions } from "../auth/login-sessions.ts";
import type { ServiceMethods } from "./service-methods.ts";
import type { AuditRecord, LoginRecord, SigningKeyRecord, TokenRecord } from "../domain/records.ts";
import { listKeys, rotateKey } from "../operations/signing-keys.ts";
import { createToken, listTokens, revokeToken } from "../operations/tokens.ts";
import { createLogin, listLogins, revokeLogin } from "../logins/logins.ts";
import { callerOf } from "../auth/visibility.ts";
import type { Pool } from "../pool/pool.ts";
import type { PoolKey } from "../state/pool-key.ts";
import { unixSeconds } from "../timers/clock.ts";
import type { Store } from "../state/store.ts";
import { checkRange } from "../domain/validate-claim.ts";

const defaultRecords = 100;
const maxRecords = 1000;

export interface AccessParts {
  readonly store: Store;
  readonly sessions: LoginSessions;
  readonly poolKey: PoolKey;
}

export function makeAccessService(
  pool: Pool,
  { store, sessions, poolKey }: AccessParts,
): ServiceMethods<typeof AccessService> {
  return {
    async createToken({ name, role, tenant, node, lifetimeSeconds }, context) {
      const { token, secret } = await createToken(pool, callerOf(context), {
        name: parseName(name, "token name"),
        role,
        tenant: tenant === "" ? "" : parseName(tenant, "tenant"),
        node: node === "" ? "" : parseNodeName(node),
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

    async listKeys() {
      return { keys: listKeys(pool).map(toSigningKey) };
    },

    async rotateKey({ revoke }) {
      return { key: toSigningKey(await rotateKey(pool, poolKey, { isRevoking: revoke })) };
    },

    async createLoginCode(_request, { values }) {
      const { code, expiresAt } = sessions.makeCode(parseBearer(values.get(authorizationKey)) ?? "");
      return { code, expiresAt: BigInt(expiresAt) };
    },

    async createLogin({ id, kind }, context) {
      if (kind !== "console" && kind !== "command-line") {
        throw millpondError("MILLPOND_E_INVALID", `kind is ${quote(kind)}, not console or command-line`);
      }
      await createLogin(pool, callerOf(context), { id, kind });
      return {};
    },

    async listLogins(_request, context) {
      return { logins: listLogins(pool, callerOf(context), unixSeconds(pool.clock)).map(toLogin) };
    },

    async revokeLogin({ id }, context) {
      return { login: toLogin(await revokeLogin(pool, callerOf(context), id)) };
    },

    async getCaller(_request, context) {
      const { name, role, tenant, expiresAt = 0, claim, node = "", login } = callerOf(context);
      const rights = { name, role, tenant, claim: claim?.name ?? "", node };
      return { ...rights, expiresAt: BigInt(expiresAt), login: login?.id ?? "" };
    },

    async listAudit({ after, limit, fromOldest }, context) {
      if (after > BigInt(Number.MAX_SAFE_INTEGER)) {
        throw millpondError("MILLPOND_E_INVALID", `after is ${after}, not the id of a record`);
      }
      const { tenant } = callerOf(context);
      const records = await store.listAudit({
        after: Number(after),
        tenant,
        fromOldest,
        limit: checkRange(limit === 0 ? defaultRecords : limit, "limit", 1, maxRecords),
      });
      return { records: records.map((each) => toAuditRecord(each, tenant)) };
    },
  };
}

/**
 * @param tenant The tenant of the caller; empty: all tenants. The hash chain covers the records of all tenants, so a
 * single tenant gets no hashes.
 */
function toAuditRecord(record: AuditRecord, tenant: string) {
  const chained = tenant === "" ? record : { ...record, previousHash: "", hash: "" };
  return { ...chained, id: BigInt(record.id), at: BigInt(record.at) };
}

function toSigningKey({ id, createdAt, retiresAt, isRevoked, sealed, publicKey }: SigningKeyRecord) {
  return {
    id,
    createdAt: BigInt(createdAt),
    retiresAt: BigInt(retiresAt ?? 0),
    revoked: isRevoked,
    derives: sealed !== "",
    publicKey,
  };
}

function toLogin({ createdAt, expiresAt, ...login }: LoginRecord) {
  return { ...login, createdAt: BigInt(createdAt), expiresAt: BigInt(expiresAt) };
}

function toToken({ name, role, tenant, node, createdAt, expiresAt, createdBy }: TokenRecord) {
  return {
    name,
    role,
    tenant,
    node,
    createdAt: BigInt(createdAt),
    expiresAt: BigInt(expiresAt ?? 0),
    createdBy,
  };
}

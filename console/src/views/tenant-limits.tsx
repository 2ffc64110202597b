// SPDX-License-Identifier: Apache-2.0

// The limits of a tenant and of its users as texts of a form, in the notation of the command.

import { parseQuota, quotaText, type Tenant } from "@millpond/api/browser";
import { Field } from "../parts/field.tsx";
import { nameWord, shellWord } from "../parts/shell.ts";
import { texts } from "../texts/texts.ts";
import { QuotaField } from "./queue-actions.tsx";

interface UserLimitText {
  readonly user: string;
  readonly limit: string;
}

export interface LimitTexts {
  readonly limit: string;
  /** The limit of each user that is not named. */
  readonly each: string;
  readonly users: readonly UserLimitText[];
}

export function limitTexts(tenant: Tenant | undefined): LimitTexts {
  return {
    limit: quotaText(tenant?.limit),
    each: quotaText(tenant?.userLimits?.each),
    users: (tenant?.userLimits?.users ?? []).map(({ user, limit }) => ({ user, limit: quotaText(limit) })),
  };
}

/**
 * The tenant for a request. Unchanged limits of users are left out, so that they stay as they are.
 *
 * @throws the problem with a text
 */
export function parseLimits({ limit, each, users }: LimitTexts, before: LimitTexts) {
  const isSame = each === before.each && JSON.stringify(users) === JSON.stringify(before.users);
  return {
    limit: parseQuota(limit || "none"),
    ...(isSame
      ? {}
      : {
          userLimits: {
            each: parseQuota(each || "none"),
            users: users.map((own) => ({ user: own.user, limit: parseQuota(own.limit || "none") })),
          },
        }),
  };
}

/** The equivalent commands: one command for each user whose limit changes. */
export function limitCommand(name: string, isNew: boolean, now: LimitTexts, before: LimitTexts): string {
  const change = `millpond tenant change ${nameWord(name)}`;
  const first = isNew ? `millpond tenant create ${nameWord(name)}` : change;
  const each = now.each === before.each ? "" : ` --user-limit ${shellWord(now.each || "none")}`;
  const limitOf = (wanted: string, { users }: LimitTexts) => users.find(({ user }) => user === wanted)?.limit;
  const own = now.users
    .filter(({ user, limit }) => limitOf(user, before) !== limit)
    .map(
      ({ user, limit }) => `${change} --user ${shellWord(user)} --user-limit ${shellWord(limit || "none")}`,
    );
  const forgotten = before.users
    .filter(({ user }) => limitOf(user, now) === undefined)
    .map(({ user }) => `${change} --forget-user ${shellWord(user)}`);
  return [`${first} --limit ${shellWord(now.limit || "none")}${each}`, ...own, ...forgotten].join(" && ");
}

export function LimitFields({
  of,
  onChange,
}: {
  readonly of: LimitTexts;
  readonly onChange: (next: LimitTexts) => void;
}) {
  const t = texts();
  const change = (index: number, part: Partial<UserLimitText>): void =>
    onChange({ ...of, users: of.users.map((own, at) => (at === index ? { ...own, ...part } : own)) });
  return (
    <>
      <QuotaField label={t.limit} value={of.limit} onChange={(limit) => onChange({ ...of, limit })} />
      <QuotaField label={t.userLimit} value={of.each} onChange={(each) => onChange({ ...of, each })} />
      {of.users.map(({ user, limit }, index) => (
        // Rows are not keyed by name, which changes while it is typed.
        <div class="field-row" key={index}>
          <Field
            label={t.userOf(index + 1)}
            value={user}
            onChange={(next) => change(index, { user: next })}
            placeholder="ann"
            required
          />
          <QuotaField
            label={t.userLimitOf(index + 1)}
            value={limit}
            onChange={(next) => change(index, { limit: next })}
          />
          <button
            type="button"
            aria-label={`${t.removeUser}: ${user || index + 1}`}
            onClick={() => onChange({ ...of, users: of.users.filter((_, at) => at !== index) })}
          >
            {t.removeUser}
          </button>
        </div>
      ))}
      <button
        type="button"
        onClick={() => onChange({ ...of, users: [...of.users, { user: "", limit: "" }] })}
      >
        {t.addUser}
      </button>
    </>
  );
}

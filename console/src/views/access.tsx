// SPDX-License-Identifier: Apache-2.0

import { useState } from "preact/hooks";
import { type AuditRecord, type Login, parseDuration, type Token } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
import { Field, NameField } from "../parts/field.tsx";
import { dateTime } from "../parts/format.ts";
import { nameWord, shellWord } from "../parts/shell.ts";
import { type Column, Table } from "../parts/table.tsx";
import { Awaited, Command, View } from "../parts/view.tsx";
import { access } from "../state/calls.ts";
import { type Me, mayAs } from "../state/login.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

interface Made {
  readonly name: string;
  readonly secret: string;
}

export function AccessView({ me }: { readonly me: Me }) {
  const t = texts();
  const [made, setMade] = useState<Made | undefined>(undefined);
  const watched = useWatch("tokens", async (signal) => (await access.listTokens({}, { signal })).tokens);
  const columns: Column<Token>[] = [
    { id: "name", title: t.name, width: "minmax(10rem, 1fr)", value: ({ name }) => name },
    { id: "role", title: t.role, width: "8rem", value: ({ role }) => role },
    { id: "tenant", title: t.tenant, width: "8rem", value: ({ tenant }) => tenant },
    {
      id: "created",
      title: t.created,
      width: "13rem",
      value: ({ createdAt }) => Number(createdAt),
      cell: ({ createdAt }) => dateTime(createdAt),
    },
    { id: "by", title: t.createdBy, width: "minmax(8rem, 1fr)", value: ({ createdBy }) => createdBy },
    {
      id: "expires",
      title: t.expires,
      width: "13rem",
      value: ({ expiresAt }) => (expiresAt === 0n ? Number.MAX_SAFE_INTEGER : Number(expiresAt)),
      cell: ({ expiresAt }) => dateTime(expiresAt),
    },
    {
      id: "actions",
      title: t.actionsTitle,
      width: "7rem",
      value: () => "",
      cell: ({ name }) => (
        <Action
          // Only one row at a time shows its token.
          key={name}
          label={t.actions.revoke}
          accessibleName={`${t.actions.revoke}: ${name}`}
          title={`${t.actions.revoke}: ${name}`}
          command={`millpond token revoke ${nameWord(name)}`}
          onDo={async ({ headers }) => {
            await access.revokeToken({ name }, { headers });
            watched.again();
          }}
        >
          <p>{t.revokeMeans}</p>
        </Action>
      ),
    },
  ];
  const more = (
    <MakeToken
      me={me}
      onMade={(next) => {
        setMade(next);
        watched.again();
      }}
    />
  );
  return (
    <View title={t.views.access} command="millpond token list" more={more}>
      {made !== undefined && (
        <section class="panel secret" role="status">
          <p>{t.secretOf(made.name)}</p>
          <Command text={made.secret} />
        </section>
      )}
      <Awaited of={watched}>
        {(tokens) => <Table label={t.views.access} items={tokens} columns={columns} />}
      </Awaited>
      <h2>{t.logins}</h2>
      <Logins />
    </View>
  );
}

/** The logins that the user may end. */
function Logins() {
  const t = texts();
  const watched = useWatch("logins", async (signal) => (await access.listLogins({}, { signal })).logins);
  const columns: Column<Login>[] = [
    { id: "who", title: t.who, width: "minmax(9rem, 1fr)", value: ({ who }) => who },
    { id: "tenant", title: t.tenant, width: "7rem", value: ({ tenant }) => tenant },
    {
      id: "kind",
      title: t.kind,
      width: "8rem",
      value: ({ kind }) => t.loginKinds[kind === "console" ? "console" : "command-line"],
    },
    {
      id: "created",
      title: t.created,
      width: "13rem",
      value: ({ createdAt }) => Number(createdAt),
      cell: ({ createdAt }) => dateTime(createdAt),
    },
    {
      id: "expires",
      title: t.expires,
      width: "13rem",
      value: ({ expiresAt }) => Number(expiresAt),
      cell: ({ expiresAt }) => dateTime(expiresAt),
    },
    { id: "id", title: "ID", width: "11rem", value: ({ id }) => id },
    {
      id: "actions",
      title: t.actionsTitle,
      width: "7rem",
      value: () => "",
      cell: ({ id, who }) => (
        <Action
          key={id}
          label={t.actions.endLogin}
          accessibleName={`${t.actions.endLogin}: ${who} ${id}`}
          title={`${t.actions.endLogin}: ${who}`}
          command={`millpond logout --id ${id}`}
          onDo={async ({ headers }) => {
            await access.revokeLogin({ id }, { headers });
            watched.again();
          }}
        >
          <p>{t.endLoginMeans}</p>
        </Action>
      ),
    },
  ];
  return (
    <Awaited of={watched}>
      {(logins) => <Table label={t.logins} items={logins} columns={columns} isPart />}
    </Awaited>
  );
}

function MakeToken({ me, onMade }: { readonly me: Me; readonly onMade: (made: Made) => void }) {
  const t = texts();
  const roles = mayAs(me, "admin") ? ["user", "tenant-admin", "agent", "admin"] : ["user", "tenant-admin"];
  const [name, setName] = useState("");
  const [role, setRole] = useState("user");
  const [tenant, setTenant] = useState("");
  const [lifetime, setLifetime] = useState("90d");
  const isOfTenant = role === "user" || role === "tenant-admin";
  const options = [
    nameWord(name),
    ...(role === "user" ? [] : ["--role", role]),
    ...(isOfTenant && tenant !== "" ? ["--tenant", shellWord(tenant)] : []),
    ...(lifetime === "" ? [] : ["--expires", shellWord(lifetime)]),
  ];
  return (
    <Action
      label={t.actions.makeToken}
      title={t.actions.makeToken}
      command={`millpond token create ${options.join(" ")}`}
      onDo={async ({ headers }) => {
        const { secret } = await access.createToken(
          {
            name,
            role,
            tenant: isOfTenant ? tenant : "",
            lifetimeSeconds: BigInt(lifetime === "" ? 0 : parseDuration(lifetime)),
          },
          { headers },
        );
        onMade({ name, secret });
      }}
    >
      <p>{t.makeTokenMeans}</p>
      <NameField value={name} onChange={setName} required />
      <label class="field">
        {t.role}
        <select value={role} onChange={({ currentTarget }) => setRole(currentTarget.value)}>
          {roles.map((each) => (
            <option value={each} key={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      {isOfTenant && (
        <NameField
          label={t.tenant}
          value={tenant}
          onChange={setTenant}
          placeholder={me.tenant === "" ? "default" : me.tenant}
        />
      )}
      <Field label={t.lifetime} value={lifetime} onChange={setLifetime} placeholder={t.never} />
    </Action>
  );
}

const batch = 1000;
const mostKept = 10_000;

/** Continues where the last answer ended, like events. */
export function AuditView() {
  const t = texts();
  const watched = useWatch<readonly AuditRecord[]>("audit", async (signal, before = []) => {
    const { records } = await access.listAudit({ after: before[0]?.id ?? 0n, limit: batch }, { signal });
    return records.length === 0 ? before : [...records.toReversed(), ...before].slice(0, mostKept);
  });
  const columns: Column<AuditRecord>[] = [
    {
      id: "time",
      title: t.time,
      width: "13rem",
      value: ({ id }) => Number(id),
      cell: ({ at }) => dateTime(at),
    },
    { id: "who", title: t.who, width: "minmax(8rem, 1fr)", value: ({ who }) => who },
    { id: "role", title: t.role, width: "8rem", value: ({ role }) => role },
    { id: "tenant", title: t.tenant, width: "7rem", value: ({ tenant }) => tenant },
    { id: "what", title: t.what, width: "minmax(13rem, 1.2fr)", value: ({ what }) => what },
    { id: "subject", title: t.subject, width: "minmax(9rem, 1fr)", value: ({ subject }) => subject },
    { id: "why", title: t.why, width: "minmax(9rem, 1.5fr)", value: ({ why }) => why },
    { id: "result", title: t.result, width: "minmax(6rem, 1fr)", value: ({ result }) => result },
  ];
  return (
    <View title={t.views.audit} command="millpond get audit">
      <Awaited of={watched}>
        {(records) => <Table label={t.views.audit} items={records} columns={columns} />}
      </Awaited>
    </View>
  );
}

// SPDX-License-Identifier: Apache-2.0

// Making, changing and deleting tenants. For administrators: the controller refuses others.

import { useState } from "preact/hooks";
import { parseQuota, quotaText, type Tenant } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
import { NameField } from "../parts/field.tsx";
import { nameWord, shellWord } from "../parts/shell.ts";
import { queues } from "../state/calls.ts";
import { texts } from "../texts/texts.ts";
import { QuotaField } from "./queue-actions.tsx";

/** Makes a tenant; with `tenant`, changes that one. */
export function PutTenant({ tenant, onDone }: { readonly tenant?: Tenant; readonly onDone: () => void }) {
  const t = texts();
  const isNew = tenant === undefined;
  const before = { name: tenant?.name ?? "", limit: quotaText(tenant?.limit) };
  const [name, setName] = useState(before.name);
  const [limit, setLimit] = useState(before.limit);
  const label = isNew ? t.actions.makeTenant : t.actions.change;
  return (
    <Action
      label={label}
      {...(isNew ? {} : { accessibleName: `${label}: ${name}` })}
      title={isNew ? label : `${label}: ${name}`}
      command={`millpond tenant ${isNew ? "create" : "change"} ${nameWord(name)} --limit ${shellWord(limit || "none")}`}
      onOpen={() => {
        setName(before.name);
        setLimit(before.limit);
      }}
      onDo={async ({ headers }) => {
        await queues.putTenant(
          {
            tenant: { name, limit: parseQuota(limit || "none") },
            createOnly: isNew,
            changeOnly: !isNew,
          },
          { headers },
        );
        onDone();
      }}
    >
      <p>{t.tenantMeans}</p>
      {isNew && <NameField value={name} onChange={setName} required />}
      <QuotaField label={t.limit} value={limit} onChange={setLimit} />
    </Action>
  );
}

export function DeleteTenant({ name, onDone }: { readonly name: string; readonly onDone: () => void }) {
  const t = texts();
  const label = t.actions.delete;
  return (
    <Action
      label={label}
      accessibleName={`${label}: ${name}`}
      title={`${label}: ${name}`}
      command={`millpond tenant delete ${nameWord(name)}`}
      onDo={async ({ headers }) => {
        await queues.deleteTenant({ name }, { headers });
        onDone();
      }}
    >
      <p>{name === "default" ? t.defaultStays : t.deleteTenantMeans}</p>
    </Action>
  );
}

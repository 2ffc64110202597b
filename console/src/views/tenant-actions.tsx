// SPDX-License-Identifier: Apache-2.0

// Creating, changing and deleting tenants. For administrators only: the controller refuses others.

import { useState } from "preact/hooks";
import type { Tenant } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
import { NameField } from "../parts/field.tsx";
import { nameWord } from "../parts/shell.ts";
import { queues } from "../state/calls.ts";
import { texts } from "../texts/texts.ts";
import { limitCommand, LimitFields, limitTexts, parseLimits } from "./tenant-limits.tsx";

/** Creates a tenant, or with `tenant` changes that one. */
export function PutTenant({ tenant, onDone }: { readonly tenant?: Tenant; readonly onDone: () => void }) {
  const t = texts();
  const isNew = tenant === undefined;
  const before = limitTexts(tenant);
  const [name, setName] = useState(tenant?.name ?? "");
  const [limits, setLimits] = useState(before);
  const label = isNew ? t.actions.makeTenant : t.actions.change;
  return (
    <Action
      label={label}
      {...(isNew ? {} : { accessibleName: `${label}: ${name}` })}
      title={isNew ? label : `${label}: ${name}`}
      command={limitCommand(name, isNew, limits, before)}
      onOpen={() => {
        setName(tenant?.name ?? "");
        setLimits(before);
      }}
      onDo={async ({ headers }) => {
        await queues.putTenant(
          {
            tenant: { name, ...parseLimits(limits, before) },
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
      <LimitFields of={limits} onChange={setLimits} />
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

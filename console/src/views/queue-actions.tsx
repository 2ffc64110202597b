// SPDX-License-Identifier: Apache-2.0

// Creating, changing and deleting queues. For administrators only: the controller refuses others.

import { useState } from "preact/hooks";
import { borrowingWord, parseBorrowing, parseQuota, type Queue, quotaText } from "@millpond/api/browser";
import { Action } from "../parts/action.tsx";
import { Field, NameField } from "../parts/field.tsx";
import { nameWord, shellWord } from "../parts/shell.ts";
import { queues } from "../state/calls.ts";
import { texts } from "../texts/texts.ts";

/** The settings of a queue as texts of a form, in the notation of the command. */
interface Form {
  readonly name: string;
  /** Empty: none. */
  readonly parent: string;
  readonly weight: string;
  readonly borrowing: string;
  readonly guaranteed: string;
  readonly limit: string;
}

const first: Form = {
  name: "",
  parent: "",
  weight: "1",
  borrowing: "any",
  guaranteed: "none",
  limit: "none",
};

function formOf({ name, parent, weight, borrowing, guaranteed, limit }: Queue): Form {
  return {
    name,
    parent,
    weight: String(weight),
    borrowing: borrowingWord(borrowing),
    guaranteed: quotaText(guaranteed),
    limit: quotaText(limit),
  };
}

/** The options for the settings that differ from the present ones. */
function optionsOf(form: Form, before: Form): string {
  const names = ["parent", "weight", "borrowing", "guaranteed", "limit"] as const;
  return names
    .filter((name) => form[name] !== before[name])
    .map((name) => ` --${name} ${shellWord(form[name] || "none")}`)
    .join("");
}

/** Creates a queue, or with `queue` changes that one. */
export function PutQueue({ queue, onDone }: { readonly queue?: Queue; readonly onDone: () => void }) {
  const t = texts();
  const before = queue === undefined ? first : formOf(queue);
  const [form, setForm] = useState(before);
  const set = (member: keyof Form) => (value: string) => setForm({ ...form, [member]: value });
  const isNew = queue === undefined;
  const { name } = form;
  const label = isNew ? t.actions.makeQueue : t.actions.change;
  return (
    <Action
      label={label}
      {...(isNew ? {} : { accessibleName: `${label}: ${name}` })}
      title={isNew ? label : `${label}: ${name}`}
      command={`millpond queue ${isNew ? "create" : "change"} ${nameWord(name)}${optionsOf(form, before)}`}
      onOpen={() => setForm(before)}
      onDo={async ({ headers }) => {
        await queues.putQueue(
          {
            queue: {
              name,
              parent: form.parent,
              weight: Number(form.weight),
              borrowing: parseBorrowing(form.borrowing),
              guaranteed: parseQuota(form.guaranteed || "none"),
              limit: parseQuota(form.limit || "none"),
            },
            createOnly: isNew,
            changeOnly: !isNew,
          },
          { headers },
        );
        onDone();
      }}
    >
      <p>{t.queueMeans}</p>
      {isNew && <NameField value={name} onChange={set("name")} required />}
      <NameField label={t.parent} value={form.parent} onChange={set("parent")} placeholder={t.none} />
      <Field
        label={t.weight}
        value={form.weight}
        onChange={set("weight")}
        required
        inputMode="numeric"
        pattern="[1-9][0-9]{0,4}"
      />
      <label class="field">
        {t.borrowing}
        <select
          value={form.borrowing}
          onChange={({ currentTarget }) => set("borrowing")(currentTarget.value)}
        >
          {Object.entries(t.borrowings).map(([word, text]) => (
            <option value={word} key={word}>
              {text}
            </option>
          ))}
        </select>
      </label>
      <QuotaField label={t.guaranteed} value={form.guaranteed} onChange={set("guaranteed")} />
      <QuotaField label={t.limit} value={form.limit} onChange={set("limit")} />
    </Action>
  );
}

/** A quota in the notation of the command. */
export function QuotaField(of: {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
}) {
  return <Field {...of} placeholder="gpus=8,compute=800%,memory=1Ti" />;
}

export function DeleteQueue({ name, onDone }: { readonly name: string; readonly onDone: () => void }) {
  const t = texts();
  const label = t.actions.delete;
  return (
    <Action
      label={label}
      accessibleName={`${label}: ${name}`}
      title={`${label}: ${name}`}
      command={`millpond queue delete ${nameWord(name)}`}
      onDo={async ({ headers }) => {
        await queues.deleteQueue({ name }, { headers });
        onDone();
      }}
    >
      <p>{name === "default" ? t.defaultStays : t.deleteQueueMeans}</p>
    </Action>
  );
}

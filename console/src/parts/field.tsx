// SPDX-License-Identifier: Apache-2.0

import { texts } from "../texts/texts.ts";

/** A labelled input of a form. */
export function Field({
  label,
  value,
  onChange,
  ...more
}: {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly placeholder?: string;
  readonly pattern?: string;
  readonly required?: boolean;
  readonly inputMode?: "numeric";
}) {
  return (
    <label class="field">
      {label}
      <input
        type="text"
        value={value}
        onInput={({ currentTarget }) => onChange(currentTarget.value)}
        {...more}
      />
    </label>
  );
}

/** A DNS label, as for claims, tokens, queues and tenants; the browser submits nothing else. */
export function NameField({
  label = texts().name,
  ...more
}: {
  readonly label?: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly placeholder?: string;
  readonly required?: boolean;
}) {
  return <Field label={label} pattern="[a-z0-9]([a-z0-9\-]{0,61}[a-z0-9])?" {...more} />;
}

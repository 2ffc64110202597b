// SPDX-License-Identifier: Apache-2.0

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

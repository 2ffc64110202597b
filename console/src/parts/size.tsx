// SPDX-License-Identifier: Apache-2.0

// Number and size of the vGPUs of a claim, as texts of a form.

import { parsePercent, parseSize } from "@millpond/api/browser";
import { texts } from "../texts/texts.ts";
import { Field } from "./field.tsx";

/** Empty: not given. */
export interface SizeText {
  readonly gpus: string;
  readonly memory: string;
  readonly compute: string;
}

export const noSize: SizeText = { gpus: "", memory: "", compute: "" };

/**
 * The values for a request; 0 if not given.
 *
 * @throws the problem with a text
 */
export function parseSizeText({ gpus, memory, compute }: SizeText) {
  return {
    gpus: gpus === "" ? 0 : Number(gpus),
    memoryBytes: memory === "" ? 0n : parseSize(memory),
    computePercent: compute === "" ? 0 : parsePercent(compute),
  };
}

/** The options for a command; a text that cannot be parsed, for example because it is half typed, is left out. */
export function readableSize({ gpus, memory, compute }: SizeText): SizeText {
  try {
    parseSizeText({ gpus, memory, compute });
    return /^\d*$/.test(gpus) ? { gpus, memory, compute } : noSize;
  } catch {
    return noSize;
  }
}

export function SizeFields({
  of,
  onChange,
}: {
  readonly of: SizeText;
  readonly onChange: (next: SizeText) => void;
}) {
  const t = texts();
  return (
    <>
      <Field
        label={t.gpus}
        value={of.gpus}
        onChange={(gpus) => onChange({ ...of, gpus })}
        inputMode="numeric"
        pattern="[1-9]|[1-5][0-9]|6[0-4]"
      />
      <Field
        label={t.memoryEach}
        value={of.memory}
        onChange={(memory) => onChange({ ...of, memory })}
        placeholder="8Gi"
        pattern="[0-9.]+[KMGTkmgt]?i?B?"
      />
      <Field
        label={t.shareEach}
        value={of.compute}
        onChange={(compute) => onChange({ ...of, compute })}
        placeholder="50%"
        pattern="[0-9.]+%?"
      />
    </>
  );
}

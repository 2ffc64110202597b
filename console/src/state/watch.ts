// SPDX-License-Identifier: Apache-2.0

// Refreshes the data of the page while the page is visible. When no answer arrives, the last one stays, marked as old, until
// the controller, or the next leader, answers again.

import { useEffect, useState } from "preact/hooks";
import { isAnswer, isLoggedOut, textOf } from "./calls.ts";
import { loseLogin } from "./login.ts";
import { Store } from "./store.ts";

export interface Watched<T> {
  /** The last answer. */
  readonly data: T | undefined;
  /** Time of the last answer, Unix milliseconds. */
  readonly at: number;
  /** Why there is no newer answer; undefined: there is no problem. */
  readonly trouble: string | undefined;
}

/** Since when the controller has not answered, Unix milliseconds; 0: it answers. */
export const silentSince = new Store(0);

const shortestMs = 2000;
const longestRetryMs = 8000;
const patienceMs = 20_000;

/**
 * Pause as a multiple of the answer's duration: slow calls are made less often, so a page uses at most a twentieth of a
 * controller's time.
 */
const pausePerAnswer = 20;

/**
 * @param key identifies the data: another key starts another call; empty: no call is made
 * @returns the present answer, and `again`, which repeats the call immediately
 */
export function useWatch<T>(
  key: string,
  ask: (signal: AbortSignal, before: T | undefined) => Promise<T>,
): Watched<T> & { readonly again: () => void } {
  const [state, setState] = useState<Watched<T> & { readonly key: string }>(() => ({ ...nothing, key }));
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (key === "") {
      return undefined;
    }
    const stop = new AbortController();
    void watch(ask, stop.signal, (change) =>
      setState((before) => ({ ...(before.key === key ? before : nothing), ...change, key })),
    );
    return () => stop.abort();
  }, [key, turn]);
  const current = state.key === key ? state : nothing;
  return { ...current, again: () => setTurn((before) => before + 1) };
}

const nothing = { data: undefined, at: 0, trouble: undefined } as const;

async function watch<T>(
  ask: (signal: AbortSignal, before: T | undefined) => Promise<T>,
  stop: AbortSignal,
  tell: (change: Partial<Watched<T>>) => void,
): Promise<void> {
  let before: T | undefined;
  for (let failures = 0; !stop.aborted; ) {
    const start = performance.now();
    try {
      before = await ask(AbortSignal.any([stop, AbortSignal.timeout(patienceMs)]), before);
      if (stop.aborted) {
        return;
      }
      failures = 0;
      silentSince.set(0);
      tell({ data: before, at: Date.now(), trouble: undefined });
    } catch (error) {
      if (stop.aborted) {
        return;
      }
      if (isLoggedOut(error)) {
        loseLogin(textOf(error));
        return;
      }
      failures += 1;
      silentSince.set(isAnswer(error) ? 0 : silentSince.get() || Date.now());
      tell({ trouble: textOf(error) });
    }
    const pauseMs =
      failures > 0
        ? Math.min(1000 * 2 ** (failures - 1), longestRetryMs)
        : Math.max(shortestMs, pausePerAnswer * (performance.now() - start));
    await pause(pauseMs, stop);
  }
}

/** Resolves when the time is over and the page is visible, or when `stop` is aborted. */
async function pause(ms: number, stop: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const goOn = (): void => {
      if (!document.hidden || stop.aborted) {
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", goOn);
        stop.removeEventListener("abort", goOn);
        resolve();
      }
    };
    const timer = setTimeout(() => {
      document.addEventListener("visibilitychange", goOn);
      goOn();
    }, ms);
    stop.addEventListener("abort", goOn);
  });
}

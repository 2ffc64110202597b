// SPDX-License-Identifier: Apache-2.0

import type { ComponentChildren } from "preact";
import { go } from "../state/place.ts";

/** A link within the console: an ordinary one, which also works in another tab, or without scripts. */
export function Link({
  to,
  children,
  ...more
}: {
  readonly to: string;
  readonly children: ComponentChildren;
  readonly class?: string;
  readonly tabIndex?: number;
  readonly onFocus?: () => void;
  readonly "aria-current"?: "page";
}) {
  const follow = (event: MouseEvent): void => {
    if (event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      go(to);
    }
  };
  return (
    <a href={to} onClick={follow} {...more}>
      {children}
    </a>
  );
}

// SPDX-License-Identifier: Apache-2.0

// The metrics of an operator, in the Prometheus text format.

import { type BookKeeper, differenceKinds } from "./books.ts";

export interface OperatorFigures {
  readonly leads: boolean;
  readonly reviews: number;
  readonly pods: number;
  readonly bookDifferences: number;
  readonly queueLength: number;
  /** Undefined: this replica does not lead. */
  readonly books: BookKeeper | undefined;
}

export function formatMetrics(figures: OperatorFigures): string {
  const { leads, reviews, pods, bookDifferences, queueLength, books } = figures;
  const lines = (name: string, help: string, value: number): string =>
    `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${name} ${value}\n`;
  return [
    lines("millpond_operator_leads", "1 if this replica is the leader, else 0.", leads ? 1 : 0),
    lines("millpond_operator_reviews", "Admission reviews received by this replica.", reviews),
    lines("millpond_operator_pods", "Pods that use the pool.", pods),
    lines(
      "millpond_operator_book_differences",
      "Number of times that Kubernetes' scheduler had no room for a pod that the pool had granted, since this replica began to lead.",
      bookDifferences,
    ),
    "# HELP millpond_operator_books_differ Differences between Kubernetes' books and the pool's that have lasted for 30 s.\n",
    "# TYPE millpond_operator_books_differ gauge\n",
    ...differenceKinds.map(
      (kind) => `millpond_operator_books_differ{kind="${kind}"} ${books?.lasting(kind) ?? 0}\n`,
    ),
    lines("millpond_operator_queue_length", "Pods waiting to be reconciled.", queueLength),
  ].join("");
}

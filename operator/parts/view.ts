import type { Registry } from 'prom-client';
import type { OperatorPart, OperatorView } from './contract.ts';

/** What parts bring together, those that are there when it is asked for; in the order of start. */
export function viewOf(all: () => readonly OperatorPart[], registry: () => Registry): OperatorView {
  return {
    unready: () => {
      for (const part of all()) {
        const why = part.unready?.();
        if (why !== undefined || part.standsBy?.() === true) return why;
      }
      return undefined;
    },
    unhealthy: () => {
      for (const part of all()) {
        const why = part.unhealthy?.();
        if (why !== undefined) return why;
      }
      return undefined;
    },
    expected: (error) => all().some((part) => part.expected?.(error) === true),
    registry,
    sources: () => all().flatMap(({ sources = [] }) => sources),
    desired: () => all().flatMap(({ desired = [] }) => desired),
  };
}

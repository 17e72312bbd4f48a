import { messageOf } from '@weir/process/errors';
import type { AgentPart, AgentView, Condition, PartCondition } from './contract.ts';

/** What parts bring together, those that are there when it is asked for. */
export function viewOf(all: () => readonly AgentPart[]): Omit<AgentView, 'parts' | 'maps' | 'objects'> {
  const conditions = (): readonly PartCondition[] => all().flatMap((part) => (part.conditions ?? []).map(readable));
  const idle = (): string | undefined => first(all(), (part) => part.idle?.());
  return {
    conditions,
    idle,
    problems: () => {
      if (idle() !== undefined) return [];
      return [
        ...all().flatMap((part) => part.problems?.() ?? []),
        ...conditions().flatMap(({ reason, read }) => {
          if (reason === undefined) return [];
          const { ok, message }: Condition = read();
          return ok ? [] : [{ reason, message }];
        }),
      ];
    },
    metrics: (registry) => {
      for (const part of all()) part.metrics?.(registry);
    },
    routes: (app) => {
      for (const part of all()) part.routes?.(app);
    },
    addresses: () => all().flatMap((part) => part.addresses ?? []),
    steps: () => all().flatMap((part) => part.steps ?? []),
    events: () => all().flatMap((part) => part.events ?? []),
    eventSources: () => all().flatMap(({ eventSource }) => eventSource ?? []),
    peerNamings: () => all().flatMap(({ peerNaming }) => peerNaming ?? []),
    sources: () => all().flatMap((part) => part.sources ?? []),
    settings: () => Object.assign({}, ...all().map((part) => part.settings)),
    removal: () => all().flatMap(({ removal }) => (removal === undefined ? [] : [removal])),
  };
}

/** What cannot be read is not ok, and says why: the others are read all the same. */
function readable(condition: PartCondition): PartCondition {
  return {
    ...condition,
    read: () => {
      try {
        return condition.read();
      } catch (error) {
        return { ok: false, message: `cannot be read: ${messageOf(error)}` };
      }
    },
  };
}

function first<T, R>(items: readonly T[], of: (item: T) => R | undefined): R | undefined {
  for (const item of items) {
    const found = of(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

import { plainNode } from '@weir/identity';
import type { Naming } from '../core.ts';
import type { Model } from './model.ts';

/** @param enforced policies that the kernel judges an endpoint by: uid -> generation */
export function namingOf(model: Model, enforced: (endpoint: number) => Readonly<Record<string, number>>): Naming {
  return {
    labelsOf(identity) {
      const id = plainNode(identity);
      return (model.identities.get(id) ?? model.localIdentity(id))?.labels;
    },
    prefixOf: (identity) => model.prefixOf(identity),
    ownerOf: (prefix) => model.ownerOf(prefix),
    endpoint: (id) => model.info(id),
    portNames: model.portNames,
    *rulesOf(endpoint) {
      const judging = enforced(endpoint);
      // What the kernel has not taken has decided nothing.
      for (const [{ row }, rule] of model.selecting(endpoint))
        if (judging[row.uid] === row.generation) yield [row, rule];
    },
  };
}

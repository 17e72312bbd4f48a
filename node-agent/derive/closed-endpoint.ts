import type { KernelEndpoint } from '../tables.ts';

const BOTH = { ingress: true, egress: true } as const;

/** No slot has the number 0: the programs let nothing through, and nobody takes the endpoint for whom it was. */
export function closedOf({ closed, ...found }: KernelEndpoint): KernelEndpoint {
  const { identity, slot, enforced } = found;
  return { ...found, identity: 0, slot: 0, enforced: BOTH, closed: closed ?? { identity, slot, enforced } };
}

/** As it was found, before it was closed. */
export function openedOf({ closed, ...found }: KernelEndpoint): KernelEndpoint {
  return { ...found, ...closed };
}

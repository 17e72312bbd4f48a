import { limitFlags } from './limit-flags.ts';
import type { Limits } from './limits.ts';
import { definePart } from './parts/contract.ts';

/** What one tenant may use. */
export const limitsPart = definePart({
  name: 'limits',
  flags: limitFlags,
  build: (_given, { config }) => ({ provides: config satisfies Limits }),
});

import { limitFlags } from './limit-flags.ts';
import type { Limits } from './limits.ts';
import { defineProcessPart } from './parts/contract.ts';

/** What one tenant may use. */
export const limitsPart = defineProcessPart({
  name: 'limits',
  flags: limitFlags,
  build: (_given, { config }) => ({ provides: config satisfies Limits }),
});

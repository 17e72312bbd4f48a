import { flag } from '@weir/process/flags';
import { parseDuration } from '../config.ts';
import { defineProcessPart } from '../parts/contract.ts';

/** How long a number that no pod has is kept, and how often such are looked for. */
export const identityGcPart = defineProcessPart({
  name: 'identity-gc',
  flags: {
    identityGcGrace: flag<number>('--identity-gc-grace <duration>', 'how long an unused identity is kept')
      .default(30 * 60_000, '30m')
      .argParser(parseDuration),
    identityGcInterval: flag<number>(
      '--identity-gc-interval <duration>',
      'interval between searches for unused identities',
    )
      .default(15 * 60_000, '15m')
      .argParser(parseDuration),
  },
  build: (_given, { config }) => ({
    provides: { graceMs: config.identityGcGrace, intervalMs: config.identityGcInterval },
  }),
});

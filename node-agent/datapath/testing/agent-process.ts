/** A core in a process of its own, for tests that kill it: it changes its rules all the time. Options come as JSON in argv; says `ready` once it has caught up. */

import type { CoreOptions } from '../../core.ts';
import { createCore } from '../../create-core.ts';
import { silent } from './lab.ts';

const options = JSON.parse(process.argv[2] ?? '{}') as Omit<CoreOptions, 'log'>;
const core = createCore({ ...options, log: silent });
let rules: unknown;
process.on('message', (command: { readonly rules: unknown }) => {
  rules = command.rules;
  process.send?.('accepted');
});
await core.start();
await core.waitPolicyRevision(core.policyRevision());
process.send?.('ready');

/** Changes rules without end: a rule more, a rule less. */
for (let round = 0; ; round += 1) {
  if (Array.isArray(rules)) {
    core.importRules(rules[round % rules.length], { replace: true });
    await core.waitPolicyRevision(core.policyRevision());
  }
  await new Promise((resolve) => setTimeout(resolve, 1));
}

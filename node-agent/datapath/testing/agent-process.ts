/**
 * A core in a process of its own, for tests that kill it: it changes its rules all the time. Options come as JSON in argv. Says `ready` once
 * it has caught up, and `changing` once the first of the rules that it was sent are stored and on their way into the kernel.
 */

import { createCore } from '../../core/create-core.ts';
import type { CoreOptions } from '../../core.ts';
import { silent } from './lab.ts';

const options = JSON.parse(process.argv[2] ?? '{}') as Omit<CoreOptions, 'log'>;
const core = createCore({ ...options, log: silent });
let rules: unknown;
process.on('message', (command: { readonly rules: unknown }) => {
  rules = command.rules;
});
await core.start();
await core.waitPolicyRevision(core.policyRevision());
process.send?.('ready');

let changing = false;
/** Changes rules without end: a rule more, a rule less. */
for (let round = 0; ; round += 1) {
  if (Array.isArray(rules)) {
    core.importRules(rules[round % rules.length], { replace: true });
    if (!changing) process.send?.('changing');
    changing = true;
    await core.waitPolicyRevision(core.policyRevision());
  }
  await new Promise((resolve) => setTimeout(resolve, 1));
}

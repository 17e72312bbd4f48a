import { expect, it } from '@jest/globals';
import type { RunCommand } from '../host/command.ts';
import { ProxyDelivery } from './delivery.ts';

/** A node by what is asked of `ip`: its rules, and the families that have the route. */
function node() {
  const rules = new Set<string>();
  const routes = new Set<string>();
  const run: RunCommand = async (_, [family = '', ...args]) => {
    await Promise.resolve();
    if (args[0] === '-json') {
      const of = [...rules].filter((rule) => rule.startsWith(family) && rule.endsWith(args.slice(3).join(' ')));
      return JSON.stringify(
        of.map((rule) => ({
          fwmark: /fwmark (0x[0-9a-f]+)/.exec(rule)?.[1],
          table: /lookup (\w+)/.exec(rule)?.[1],
        })),
      );
    }
    const [kind, verb, ...rest] = args;
    if (kind === 'route') routes[verb === 'replace' ? 'add' : 'delete'](family);
    else rules[verb === 'add' ? 'add' : 'delete'](`${family} ${rest.join(' ')}`);
    return '';
  };
  return { rules, routes, delivery: new ProxyDelivery(run, '/proc/sys', { get: () => '', set: () => true }) };
}

it('makes what is missing once, and nothing again once it is removed', async () => {
  const { rules, routes, delivery } = node();
  await delivery.look();
  await delivery.look();
  expect(delivery.problem).toBeUndefined();
  const made = rules.size;
  expect(made).toBeGreaterThan(1);
  expect([...routes]).toEqual(['-4', '-6']);
  // One look is under way, and others come.
  const under = delivery.look();
  expect(await delivery.remove()).toHaveLength(made);
  await under;
  await delivery.look();
  expect([...rules, ...routes]).toEqual([]);
});

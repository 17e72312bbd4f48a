/** Words for the world of which the families of the cluster decide whom they select (spec 2.2, 3.2). */
import { describe, expect, it } from '@jest/globals';
import { parsePolicy } from './parse.ts';
import { judgeFlow, parseObjects } from './testing/flows.ts';
import type { ParseResult, Stack } from './types.ts';

const web = { matchLabels: { app: 'web' } };
const label = (key: string) => ({ fromEndpoints: [{ matchLabels: { [key]: '' } }] });
const policy = (lists: object) => ({
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'p', namespace: 'a' },
  spec: { endpointSelector: web, ...lists },
});
const read = (lists: object, stack: Stack): ParseResult => parsePolicy(policy(lists), 'CiliumNetworkPolicy', { stack });
const all = { fromEntities: ['all'] };

const FOUR = 'fromEntities[0]';
const WORDS: readonly (readonly [string, object, string, string, Stack])[] = [
  ['world-ipv4', { fromEntities: ['world-ipv4'] }, FOUR, 'write the CIDR 0.0.0.0/0', 'dual'],
  ['world-ipv6', { fromEntities: ['world-ipv6'] }, FOUR, 'write the CIDR ::/0', 'dual'],
  ['reserved:world-ipv4', label('reserved:world-ipv4'), 'fromEndpoints[0]', 'write the CIDR 0.0.0.0/0', 'dual'],
  ['reserved:world', label('reserved:world'), 'fromEndpoints[0].matchLabels', 'write the entity world', 'single'],
];

describe.each(WORDS)('%s', (_, element, path, hint, meant) => {
  it('is enforced as it is written in a cluster where somebody has its label', () => {
    const { problems, byStack, rules } = read({ ingress: [element] }, meant);
    expect({ problems, byStack }).toEqual({ problems: [], byStack: true });
    expect(rules[0]?.elements[0]?.peers).toMatchObject([{ kind: 'entity' }]);
  });

  it.each([meant === 'dual' ? 'single' : 'dual', 'unknown'] as const)(
    'is refused by name in another, %s: an allow is of nobody, and its neighbours stand',
    (stack) => {
      const { problems, byStack } = read({ ingress: [element] }, stack);
      expect(problems).toMatchObject([
        { code: 'UnsupportedField', path: expect.stringContaining(`spec.ingress[0].${path}`) },
      ]);
      expect(problems[0]?.message).toContain(hint);
      expect(byStack).toBe(true);
      const { rules } = parseObjects([policy({ ingress: [element, { fromEndpoints: [{}] }] })], stack);
      for (const flow of ['X -> web tcp/80: deny', 'Y -> web tcp/80: deny', 'api -> web tcp/80: allow']) {
        const { expected, oracle, compiled } = judgeFlow(rules, flow, {});
        expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
      }
    },
  );

  it.each(['single', 'dual', 'unknown'] as const)('denies at least the world in any, %s', (stack) => {
    if (stack === 'dual' && hint.includes('::/0')) return;
    const { rules } = parseObjects([policy({ ingress: [all], ingressDeny: [element] })], stack);
    for (const flow of ['X -> web tcp/80: deny', 'Y -> web tcp/80: deny']) {
      const { expected, oracle, compiled } = judgeFlow(rules, flow, {});
      expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
    }
  });
});

it('an entity that is refused in a deny shuts the world, and no pod', () => {
  const { rules } = parseObjects(
    [policy({ ingress: [all], ingressDeny: [{ fromEntities: ['world-ipv6'] }] })],
    'single',
  );
  const { expected, oracle, compiled } = judgeFlow(rules, 'api -> web tcp/80: allow', {});
  expect({ oracle, compiled }).toEqual({ oracle: expected, compiled: expected });
});

it('other words, and a label that pods call so, ask for no families', () => {
  const peers = [{ fromEntities: ['world'] }, label('world-ipv4'), { fromCIDR: ['0.0.0.0/0'] }];
  const { problems, byStack } = read({ ingress: peers }, 'single');
  expect({ problems, byStack }).toEqual({ problems: [], byStack: false });
});

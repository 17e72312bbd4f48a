/** fast-check arbitraries that press on port names: pods of any named ports, policies that mostly name ports. */
import fc from 'fast-check';
import type { OracleWorld } from '../oracle.ts';
import { type PolicyObject, SMALL_WORLD } from './worlds.ts';

const NAMES = ['http', 'dns'];
const NUMBERS = [80, 81];

/** Most pods have most names, so that pods of one identity often disagree. */
const namedPorts = fc
  .tuple(
    ...NAMES.flatMap((name) =>
      (['TCP', 'UDP'] as const).map((protocol) =>
        fc.option(
          fc.constantFrom(...NUMBERS).map((port) => ({ name, port, protocol })),
          { freq: 4, nil: undefined },
        ),
      ),
    ),
  )
  .map((ports) => ports.filter((port) => port !== undefined));

/** The small world, each pod with named ports of its own: pods of one identity agree, or do not. */
export const namedWorldArbitrary: fc.Arbitrary<OracleWorld> = fc
  .tuple(...SMALL_WORLD.endpoints.map(() => namedPorts))
  .map((ports) => ({
    ...SMALL_WORLD,
    endpoints: SMALL_WORLD.endpoints.map((endpoint, index) => ({ ...endpoint, namedPorts: ports[index] ?? [] })),
  }));

const element = (side: 'from' | 'to') =>
  fc
    .tuple(
      fc.constantFrom<object[]>(
        {},
        {},
        { [`${side}Entities`]: ['all'] },
        { [`${side}Endpoints`]: [{ matchExpressions: [{ key: 'io.kubernetes.pod.namespace', operator: 'Exists' }] }] },
        { [`${side}Endpoints`]: [{ matchLabels: { app: 'web' } }] },
        { [`${side}CIDR`]: ['10.0.0.0/8'] },
      ),
      fc.array(
        fc.record({
          port: fc.constantFrom(...NAMES, ...NAMES, '80'),
          protocol: fc.constantFrom('TCP', 'TCP', 'UDP', 'ANY'),
        }),
        { minLength: 1, maxLength: 2 },
      ),
    )
    .map(([peers, ports]) => ({ ...peers, toPorts: [{ ports }] }));

/** CNPs of every pod of namespaces a and b, half of them with an allow of everything that denies cut into. */
export const namingPoliciesArbitrary: fc.Arbitrary<PolicyObject[]> = fc
  .record({
    allow: fc.array(element('to'), { maxLength: 2 }),
    deny: fc.array(element('to'), { maxLength: 2 }),
    in: fc.array(element('from'), { maxLength: 1 }),
    inDeny: fc.array(element('from'), { maxLength: 1 }),
    everything: fc.boolean(),
  })
  .map((lists) => {
    const all = (side: string) => (lists.everything ? [{ [`${side}Entities`]: ['all'] }] : [{}]);
    const spec = {
      endpointSelector: {},
      egress: [...lists.allow, ...all('to')],
      egressDeny: lists.deny,
      ingress: [...lists.in, ...all('from')],
      ingressDeny: lists.inDeny,
    };
    const kind = 'CiliumClusterwideNetworkPolicy';
    return [{ kind, object: { metadata: { name: 'p' }, spec } }];
  });

export const namedTraffics: readonly { readonly protocol: number; readonly port: number }[] = [6, 17].flatMap(
  (protocol) => NUMBERS.map((port) => ({ protocol, port })),
);

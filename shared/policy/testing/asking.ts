/** Policies of which elements ask for a proxy or authentication, often for a peer and port that a plain allow has too. For tests. */
import fc from 'fast-check';
import type { PolicyObject } from './worlds.ts';

const ASKED: Readonly<Record<string, object>> = {
  http: { rules: { http: [{ method: 'GET' }] } },
  dns: { rules: { dns: [{ matchName: 'a.io' }, { matchPattern: '*.b.io' }] } },
  'more-dns': { rules: { dns: [{ matchName: 'C.io.' }] } },
};
const written = (...ports: number[]) => ports.map((port) => ({ port: `${port}`, protocol: 'TCP' }));

export type AskingKind = 'plain' | 'http' | 'authentication' | 'dns' | 'more-dns';
interface Element {
  readonly peer: object;
  readonly ports: readonly object[] | undefined;
  readonly kind: AskingKind;
}

const PLAIN = ['plain', 'plain'] as const;

const elementArbitrary = (side: 'from' | 'to'): fc.Arbitrary<Element> =>
  fc.record({
    peer: fc.constantFrom(
      {},
      { [`${side}Endpoints`]: [{ matchLabels: { app: 'api' } }] },
      { [`${side}Endpoints`]: [{ matchLabels: { app: 'web' } }, { matchLabels: { app: 'api' } }] },
      { [`${side}Entities`]: ['all'] },
      { [`${side}Entities`]: ['world', 'host'] },
      { [`${side}CIDR`]: ['10.0.0.0/8'] },
      ...(side === 'to' ? [{ toFQDNs: [{ matchName: 'x.io' }] }, { toFQDNs: [{ matchPattern: '*.io' }] }] : []),
    ),
    ports: fc.constantFrom(
      written(80),
      written(80),
      written(80, 81),
      [{ port: '80', endPort: 81, protocol: 'TCP' }],
      [{ port: '80' }],
      undefined,
    ),
    kind: fc.constantFrom<AskingKind>(
      ...([...PLAIN, ...PLAIN, 'http', 'http', 'authentication', 'authentication'] as const),
      ...(side === 'to' ? (['dns', 'dns', 'more-dns'] as const) : []),
    ),
  });

export interface AskingPolicy {
  readonly ingress: readonly Element[];
  readonly egress: readonly Element[];
  readonly deny: Element | null;
  readonly defaultDeny: object;
}

const listArbitrary = (side: 'from' | 'to') => fc.array(elementArbitrary(side), { maxLength: 3 });
export const askingPolicyArbitrary: fc.Arbitrary<AskingPolicy> = fc.record({
  ingress: listArbitrary('from'),
  egress: listArbitrary('to'),
  deny: fc.option(elementArbitrary('from')),
  defaultDeny: fc.constantFrom({}, {}, {}, { ingress: false }, { ingress: false, egress: false }),
});

/** `as`: of what kind elements are that ask. */
export function askingPolicyOf(
  { ingress: some, egress: others, deny, defaultDeny }: AskingPolicy,
  as: (kind: AskingKind) => AskingKind = (kind) => kind,
): PolicyObject {
  const elementOf = ({ peer, ports, kind }: Element) => ({
    ...peer,
    ...(ports === undefined ? {} : { toPorts: [{ ports, ...ASKED[as(kind)] }] }),
    ...(as(kind) === 'authentication' ? { authentication: { mode: 'required' } } : {}),
  });
  const spec = {
    endpointSelector: {},
    ingress: some.map(elementOf),
    egress: others.map(elementOf),
    ...(deny === null ? {} : { ingressDeny: [elementOf({ ...deny, kind: 'plain' })] }),
    enableDefaultDeny: defaultDeny,
  };
  return { kind: 'CiliumClusterwideNetworkPolicy', object: { metadata: { name: 'p' }, spec } };
}

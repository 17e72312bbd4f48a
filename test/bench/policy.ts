/** Suite `policy`: what it takes to read policies, typical and worst, and to compile the rules of one subject, anew and after one change. */
import {
  type CompiledPolicy,
  changesOf,
  compile,
  type Pieces,
  parsePolicy,
  type ResolvedRule,
  recompilePieces,
  resolve,
} from '@weir/policy';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const IDENTITIES = 1000;
const FIRST = 1000;
const metadata = { name: 'p', namespace: 'a' };
const cnp = (spec: object) => ({ apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', metadata, spec });
const tcp = (port: number) => ({ ports: [{ port: `${port}`, protocol: 'TCP' }] });
const app = (name: string) => ({ matchLabels: { app: name } });

/** One of an ordinary application: who may ask it, its database, DNS, and a service outside. */
const TYPICAL = cnp({
  endpointSelector: app('shop'),
  ingress: [
    { fromEndpoints: [app('web'), app('admin')], toPorts: [tcp(8080)] },
    {
      fromEndpoints: [{ matchLabels: { app: 'prometheus', 'k8s:io.kubernetes.pod.namespace': 'monitoring' } }],
      toPorts: [tcp(9090)],
    },
  ],
  egress: [
    { toEndpoints: [app('db')], toPorts: [tcp(5432)] },
    {
      toEndpoints: [{ matchLabels: { 'k8s-app': 'kube-dns', 'k8s:io.kubernetes.pod.namespace': 'kube-system' } }],
      toPorts: [{ ports: [{ port: '53', protocol: 'ANY' }] }],
    },
    { toCIDRSet: [{ cidr: '198.51.100.0/24', except: ['198.51.100.128/25'] }], toPorts: [tcp(443)] },
  ],
});

/** Objects that make most of what one may write. */
const WORST: Readonly<Record<string, object>> = {
  '50,000 CIDRs': cnp({
    endpointSelector: {},
    egress: [{ toCIDR: Array.from({ length: 49_999 }, (_, at) => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`) }],
  }),
  '50,000 CIDRs that are none': cnp({
    endpointSelector: {},
    egress: [{ toCIDR: Array.from({ length: 49_999 }, (_, at) => `10.0.0.${at}/33`) }],
  }),
  '5,000 rules of 8 ports': cnp({
    endpointSelector: {},
    ingress: Array.from({ length: 5000 }, (_, at) => ({
      toPorts: [{ ports: Array.from({ length: 8 }, (_each, port) => ({ port: `${1 + at + port}` })) }],
    })),
  }),
  '1,000 selectors of 40 values': cnp({
    endpointSelector: {},
    ingress: Array.from({ length: 1000 }, (_, at) => ({
      fromEndpoints: [
        {
          matchExpressions: [
            { key: `k${at}`, operator: 'In', values: Array.from({ length: 40 }, (_each, value) => `v${value}`) },
          ],
        },
      ],
    })),
  }),
};

function time(work: () => void): number {
  const began = performance.now();
  work();
  return performance.now() - began;
}

function run<T>(pieces: Pieces<T>): T {
  for (;;) {
    const { done, value } = pieces.next();
    if (done === true) return value;
  }
}

/** Of one subject: each admits a set of ten identities to a port. */
function rulesOf(count: number): ResolvedRule[] {
  return Array.from({ length: count }, (_, at) => ({
    subject: 's',
    direction: 'ingress' as const,
    verdict: 'allow' as const,
    peers: [{ peerSet: `set${at % 500}` }],
    ports: [{ protocol: 'TCP' as const, from: 1 + (at % 2000), to: 1 + (at % 2000) }],
    defaultDeny: true,
    cookie: 1 + at,
    path: `spec.ingress[${at}]`,
  }));
}

const members = (hash: string): number[] => {
  const number = Number(hash.slice(3));
  return Array.from({ length: 10 }, (_, at) => FIRST + ((number * 2 + at) % IDENTITIES)).sort((a, b) => a - b);
};
const SETS = Array.from({ length: 500 }, (_, at) => `set${at}`);
const setsOf = (identity: number): string[] => SETS.filter((hash) => members(hash).includes(identity));

function recompile(
  before: CompiledPolicy,
  rules: readonly ResolvedRule[],
  rulesBefore: readonly ResolvedRule[],
  changed: Iterable<number>,
): CompiledPolicy {
  const input = { rules, mode: 'default' as const, changed: new Set(changed), setsOf, cidrPeer: () => undefined };
  const after = run(recompilePieces(before, rules === rulesBefore ? input : { ...input, rulesBefore }));
  if (after === undefined) throw new Error('the change was not taken in');
  return after;
}

export const policy: Suite = async function* () {
  for (let warm = 0; warm < 2000; warm += 1) parsePolicy(TYPICAL, 'CiliumNetworkPolicy');
  const times = Array.from({ length: 2000 }, () =>
    time(() => {
      resolve(parsePolicy(TYPICAL, 'CiliumNetworkPolicy').rules, { cookieOf: () => 1 });
    }),
  );
  for (const share of [0.5, 0.99])
    yield {
      case: `parse and resolve a typical policy, p${share * 100}`,
      value: quantile(times, share) * 1000,
      unit: 'us',
      goal: 100,
    };
  for (const [name, object] of Object.entries(WORST)) {
    const value = Math.min(
      ...Array.from({ length: 3 }, () => time(() => void parsePolicy(object, 'CiliumNetworkPolicy'))),
    );
    yield { case: `parse ${name}`, value, unit: 'ms' };
  }
  const peerSets = { identities: members };
  for (const count of [100, 1000, 10_000]) {
    const rules = rulesOf(count);
    const input = { rules, peerSets, identities: [], mode: 'default' as const };
    const value = Math.min(...Array.from({ length: 3 }, () => time(() => void compile(input))));
    yield { case: `compile ${count} rules of one subject, ${IDENTITIES} identities`, value, unit: 'ms' };
  }
  const rules = rulesOf(10_000);
  const before = compile({ rules, peerSets, identities: [], mode: 'default' });
  const joins = Array.from({ length: 200 }, (_, at) => time(() => void recompile(before, rules, rules, [FIRST + at])));
  const edits = Array.from({ length: 50 }, (_, at) => {
    const edited = rules.with(at * 7, {
      ...(rules[at * 7] as ResolvedRule),
      peers: [{ peerSet: `set${(at * 3) % 500}` }],
    });
    return time(() => {
      const changes = run(changesOf(rules, edited));
      const changed = [...(changes?.peerSets ?? [])].flatMap(members);
      recompile(before, edited, rules, changed);
    });
  });
  for (const [name, samples] of [
    ['one identity', joins],
    ['one rule', edits],
  ] as const)
    for (const share of [0.5, 0.99])
      yield { case: `${name} changed at 10,000 rules, p${share * 100}`, value: quantile(samples, share), unit: 'ms' };
};

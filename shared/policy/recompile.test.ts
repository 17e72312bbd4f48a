import { describe, expect, it } from '@jest/globals';
import { parsePrefix, prefixContains } from '@weir/net';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import {
  type CompiledPolicy,
  type CompileInput,
  changesOf,
  compile,
  type Pieces,
  type RecompileInput,
  type RulePort,
  recompilePieces,
  rowsIn,
} from './index.ts';

const SETS = ['a', 'b', 'c'] as const;
type Sets = Readonly<Record<string, ReadonlySet<number>>>;

function recompile(before: CompiledPolicy, input: RecompileInput): CompiledPolicy | undefined {
  return run(recompilePieces(before, input));
}

function run<T>(pieces: Pieces<T>): T {
  for (;;) {
    const { done, value } = pieces.next();
    if (done === true) return value;
  }
}

function inputs(
  base: Omit<CompileInput, 'peerSets'>,
  sets: Sets,
  changed: Iterable<number>,
): RecompileInput & CompileInput {
  return {
    ...base,
    peerSets: { identities: (hash) => sets[hash] && [...sets[hash]].sort((a, b) => a - b) },
    changed: new Set(changed),
    setsOf: (id) => SETS.filter((hash) => sets[hash]?.has(id)),
    cidrPeer: (id) => Array.from(base.identities).find((peer) => peer.id === id),
  };
}

const pod = fc.integer({ min: 300, max: 306 });
const members = fc.record({ a: fc.uniqueArray(pod), b: fc.uniqueArray(pod), c: fc.uniqueArray(pod) });
const setsArbitrary = members.map(
  (record): Sets => Object.fromEntries(Object.entries(record).map(([name, ids]) => [name, new Set(ids)])),
);
const port = fc.record({ protocol: fc.constantFrom('TCP' as const, 'UDP' as const), from: fc.nat(3) });
const peer = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...SETS).map((peerSet) => ({ peerSet })) },
  fc
    .constantFrom('all' as const, 'cluster' as const, 'world' as const, 'host' as const, 'kube-apiserver' as const)
    .map((entity) => ({ entity })),
  { weight: 2, arbitrary: fc.constantFrom('10.0.0.0/8', '10.1.0.0/16', '10.1.2.0/24').map((cidr) => ({ cidr })) },
  fc.constantFrom('10.1.0.0/16', '10.1.2.3/32').map((except) => ({ cidr: '10.0.0.0/8', except: [except] })),
);
const numbers = port.map((each) => ({ ...each, to: each.from + 1 }));
const named = fc.constantFrom('TCP' as const, 'UDP' as const).map((protocol) => ({ protocol, name: 'web' }));
const rulesOver = (ports: fc.Arbitrary<RulePort>) =>
  fc
    .array(
      fc.record(
        {
          direction: fc.constantFrom('ingress' as const, 'egress' as const),
          verdict: fc.constantFrom(
            'allow' as const,
            'allow' as const,
            'deny' as const,
            'redirect' as const,
            'authenticate' as const,
          ),
          defaultDeny: fc.boolean(),
          peers: fc.array(peer, { maxLength: 3 }),
          ports: fc.array(ports, { minLength: 1, maxLength: 2 }),
        },
        { requiredKeys: ['direction', 'verdict', 'defaultDeny'] },
      ),
      { minLength: 1, maxLength: 6 },
    )
    .map((rules) => rules.map((rule, at) => ({ ...rule, subject: 's', cookie: 1 + (at % 3), path: `r${at}` })));
const rulesArbitrary = rulesOver(numbers);
const baseOver = (rules: typeof rulesArbitrary) =>
  fc.record({
    rules,
    mode: fc.constantFrom('default' as const, 'always' as const),
    nodes: fc.subarray([{ id: 6, kubeApiserver: true }]),
  });
const baseArbitrary = baseOver(rulesArbitrary);
/** CIDRs that have identities, each with its API server or not. A number may stand for another CIDR later. */
const cidrsArbitrary = fc.array(
  fc.record({
    id: fc.integer({ min: 0x01000001, max: 0x01000003 }),
    cidr: fc.constantFrom('10.0.0.0/8', '10.1.0.0/16', '10.1.2.0/24', '10.1.2.3/32', '192.0.2.1/32'),
    kubeApiserver: fc.boolean(),
  }),
  { maxLength: 4 },
);
/** Numbers that identities give the port name. */
const namesArbitrary = fc
  .array(fc.record({ id: pod, protocol: fc.constantFrom('TCP' as const, 'UDP' as const), number: fc.nat(3) }), {
    maxLength: 4,
  })
  .map((given) =>
    Map.groupBy(given, ({ protocol }) => protocol)
      .entries()
      .map(([protocol, own]) => {
        const of = Map.groupBy(own, ({ id }) => id).entries();
        return [
          protocol,
          new Map(of.map(([id, all]) => [id, [...new Set(all.map(({ number }) => number))].sort((a, b) => a - b)])),
        ] as const;
      }),
  )
  .map((entries): ReadonlyMap<string, ReadonlyMap<number, readonly number[]>> => new Map(entries));
const stateArbitrary = fc.record({ sets: setsArbitrary, cidrs: cidrsArbitrary, names: namesArbitrary });

describe('a policy that is compiled for the identities that changed', () => {
  it('is what it is compiled to anew, change by change, and shares the classes that stay', () => {
    let shared = 0;
    fc.assert(
      fc.property(
        baseOver(rulesOver(fc.oneof(numbers, named))),
        stateArbitrary,
        fc.array(stateArbitrary, { maxLength: 5 }),
        (base, first, rest) => {
          const known = ({ cidrs }: typeof first) => new Map(cidrs.map((peer) => [peer.id, peer]));
          const given = (state: typeof first) => ({
            ...base,
            identities: [...base.nodes, ...known(state).values()],
            portNames: { own: () => 2, peers: (_: string, protocol: string) => state.names.get(protocol) ?? new Map() },
          });
          let state = first;
          let compiled = compile(inputs(given(first), first.sets, []));
          for (const next of rest) {
            const changed = new Set<number>();
            for (const name of SETS) {
              const [had, has] = [state, next].map(({ sets }) => sets[name] ?? new Set<number>());
              for (const id of had?.symmetricDifference(has ?? had) ?? []) changed.add(id);
            }
            for (const protocol of ['TCP', 'UDP'])
              for (let id = 300; id <= 306; id += 1)
                if (state.names.get(protocol)?.get(id)?.join() !== next.names.get(protocol)?.get(id)?.join())
                  changed.add(id);
            const [before, now] = [known(state), known(next)];
            for (const id of new Set([...before.keys(), ...now.keys()]))
              if (JSON.stringify(before.get(id)) !== JSON.stringify(now.get(id))) changed.add(id);
            const input = inputs(given(next), next.sets, changed);
            const after = recompile(compiled, input);
            expect(after).toEqual(compile(input));
            for (const direction of ['ingress', 'egress'] as const) {
              const had = new Map(compiled[direction].classes.map((one) => [one.members.join(), one]));
              for (const one of after?.[direction].classes ?? []) {
                const same = had.get(one.members.join());
                if (same === undefined || one.members.some((id) => changed.has(id))) continue;
                expect(one).toBe(same);
                shared += 1;
              }
            }
            compiled = after ?? compiled;
            state = next;
          }
        },
      ),
      { numRuns: runs(400) },
    );
    expect(shared).toBeGreaterThan(0);
  });

  it('is what other rules are compiled to, where few are concerned', () => {
    const edits = fc.array(fc.record({ at: fc.nat(6), rules: rulesArbitrary }), { minLength: 1, maxLength: 5 });
    const ofPeers = fc.record({ at: fc.nat(6), peers: fc.array(peer, { maxLength: 3 }) });
    let taken = 0;
    fc.assert(
      fc.property(
        baseArbitrary,
        stateArbitrary,
        edits,
        fc.array(ofPeers, { maxLength: 5 }),
        (base, state, anew, peers) => {
          const cidrs = new Map(state.cidrs.map((one) => [one.id, one]));
          const given = { ...base, identities: [...base.nodes, ...cidrs.values()] };
          const steps = [
            ...anew.map(({ at, rules }) => (before: typeof base.rules) => [...before.slice(at), ...rules.slice(0, 1)]),
            ...peers.map(
              (edit) => (before: typeof base.rules) =>
                before.map((one, at) => (at === edit.at ? { ...one, peers: edit.peers } : one)),
            ),
          ];
          let { rules } = base;
          let compiled = compile(inputs(given, state.sets, []));
          for (const step of steps) {
            const next = step(rules);
            const changes = run(changesOf(rules, next));
            let fresh = compile(inputs({ ...given, rules: next }, state.sets, []));
            if (changes !== undefined) {
              const within = ({ cidr }: { readonly cidr: string }): boolean =>
                [...changes.cidrs].some((outer) => prefixContains(parsePrefix(outer), parsePrefix(cidr)));
              const concerned = [
                ...[...changes.peerSets].flatMap((hash) => [...(state.sets[hash] ?? [])]),
                ...[...cidrs.values()].filter(within).map(({ id }) => id),
              ];
              const input = { ...inputs({ ...given, rules: next }, state.sets, concerned), rulesBefore: rules };
              const after = recompile(compiled, input);
              if (after !== undefined) {
                expect(after).toEqual(fresh);
                taken += 1;
                fresh = after;
              }
            }
            compiled = fresh;
            rules = next;
          }
        },
      ),
      { numRuns: runs(400) },
    );
    expect(taken).toBeGreaterThan(runs(100));
  });

  it('goes beyond no budget by rules that change, nor counts rows otherwise than anew', () => {
    let taken = 0;
    fc.assert(
      fc.property(
        baseArbitrary,
        setsArbitrary,
        rulesArbitrary,
        fc.integer({ min: 5, max: 40 }),
        (base, sets, more, mostRows) => {
          const given = { ...base, identities: base.nodes, mostRows };
          const before = compile(inputs(given, sets, []));
          const next = { ...given, rules: [...base.rules, ...more] };
          const changes = run(changesOf(base.rules, next.rules));
          if (changes === undefined) return;
          const concerned = [...changes.peerSets].flatMap((hash) => [...(sets[hash] ?? [])]);
          const fresh = compile(inputs(next, sets, []));
          const after = recompile(before, { ...inputs(next, sets, concerned), rulesBefore: base.rules });
          if (after === undefined) return;
          taken += 1;
          expect(after).toEqual(fresh);
          for (const direction of ['ingress', 'egress'] as const)
            expect(rowsIn(after[direction])).toBe(rowsIn(fresh[direction]));
        },
      ),
      { numRuns: 2000 },
    );
    expect(taken).toBeGreaterThan(20);
  });

  const rule = (fields: object) => ({
    subject: 's',
    direction: 'ingress' as const,
    verdict: 'allow' as const,
    defaultDeny: true,
    cookie: 1,
    path: 'r',
    ...fields,
  });
  const base = { rules: [rule({ peers: [{ peerSet: 'a' }] })], mode: 'default' as const, identities: [] };
  const none: Sets = { a: new Set(), b: new Set(), c: new Set() };
  const some: Sets = { ...none, a: new Set([300]) };

  it('is compiled anew where more may count than pods’ membership and CIDRs', () => {
    const before = compile(inputs(base, none, []));
    expect(recompile(before, inputs(base, some, [300]))).toEqual(compile(inputs(base, some, [300])));
    const many = Array.from({ length: 1025 }, (_, at) => 300 + at);
    expect(recompile(before, inputs(base, { ...none, a: new Set(many) }, many))).toBeUndefined();
    expect(recompile(before, inputs(base, some, [300, 6]))).toBeUndefined();
    const byName = rule({ direction: 'egress', ports: [{ protocol: 'TCP', name: 'web' }] });
    const naming = { ...base, rules: [...base.rules, byName] };
    const compiled = compile(inputs(naming, none, []));
    expect(recompile(compiled, inputs(naming, some, [300]))).toEqual(compile(inputs(naming, some, [300])));
    expect(recompile(compiled, { ...inputs(naming, some, [300]), rulesBefore: base.rules })).toBeUndefined();
    // Whoever has not compiled it does not know what it took.
    expect(recompile(structuredClone(before), inputs(base, some, [300]))).toBeUndefined();
  });

  it('is compiled anew where rows may go beyond the budget, and comes back from there', () => {
    const rules = SETS.map((peerSet, at) => {
      return rule({ peers: [{ peerSet }], cookie: 1 + at, ports: [{ protocol: 'TCP', from: at, to: at }] });
    });
    // Each scope takes one row, the host six, who else is reserved one, and each set's members one.
    const tight = { ...base, rules, mostRows: 12 };
    const two: Sets = { ...none, a: new Set([300]), b: new Set([301]) };
    const three: Sets = { ...two, c: new Set([302]) };
    const full = compile(inputs(tight, two, []));
    expect(full.ingress.excess).toBeUndefined();
    const over = compile(inputs(tight, three, [302]));
    expect(over.ingress.excess).toBeDefined();
    expect(recompile(full, inputs(tight, three, [302]))).toBeUndefined();
    expect(recompile(over, inputs(tight, two, [302]))).toBeUndefined();
    // Room that one class leaves is another's, time and again.
    let compiled = full;
    for (let time = 0; time < 20; time++) {
      const sets = { ...none, a: new Set([300]), [SETS[1 + (time % 2)] ?? '']: new Set([301]) };
      const input = inputs(tight, sets, [301]);
      const after = recompile(compiled, input) ?? compile(input);
      expect(after).toEqual(compile(input));
      expect(after.ingress.excess).toBeUndefined();
      compiled = after;
    }
  });
});

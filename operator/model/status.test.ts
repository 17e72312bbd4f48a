import { describe, expect, it } from '@jest/globals';
import type { Reported } from './node-progress.ts';
import { foldStatus, type StatusInput } from './status.ts';

const quiet: Reported = { state: 'reached', failures: [], unlisted: 0 };
const failure = (reason: string, message = 'why'): Reported['failures'][number] => ({
  uid: 'u',
  generation: 3,
  reason,
  message,
});
const input = (more: Partial<StatusInput> = {}): StatusInput => ({
  generation: 3,
  problems: [],
  enforcedGeneration: 3,
  rules: 2,
  nodes: ['n1', 'n2'],
  down: [],
  written: true,
  lagging: [],
  endpoints: 5,
  missingNames: { first: [], ambiguous: [], more: false },
  missingServices: [],
  missingGroups: [],
  reported: () => quiet,
  previous: undefined,
  now: '2026-01-01T00:00:00Z',
  ...more,
});

const conditions = (status: ReturnType<typeof foldStatus>): Record<string, string> =>
  Object.fromEntries(status.conditions.map((c) => [c.type, `${c.status} ${c.reason}`]));

describe('foldStatus', () => {
  it('all nodes have the generation', () => {
    const status = foldStatus(input());
    expect(conditions(status)).toEqual({
      Valid: 'True Valid',
      ResolvedRefs: 'True Resolved',
      Programmed: 'True Programmed',
      Ready: 'True Programmed',
    });
    expect(status.summary).toEqual({ nodes: '2/2', endpoints: 5, rules: 2 });
    expect(status.conditions.every((c) => c.observedGeneration === 3)).toBe(true);
    expect('failures' in status).toBe(false);
  });

  it.each([
    [{ ...quiet, state: 'behind' }, 'n2.'],
    [{ ...quiet, state: 'silent' }, 'n2 (has reported none).'],
    [{ ...quiet, unlisted: 7 }, 'n2 (has 7 failures more than it reports).'],
  ] as const)('one node may not have the generation: %j', (of, told) => {
    const status = foldStatus(input({ reported: (node) => (node === 'n2' ? of : quiet) }));
    expect(conditions(status)).toMatchObject({ Programmed: 'False Progressing', Ready: 'False Progressing' });
    expect(status.conditions[2]?.message).toBe(`1 of 2 nodes do not enforce generation 3 yet: ${told}`);
    expect(status.summary.nodes).toBe('1/2');
  });

  it('of failures, at most five are shown, sorted', () => {
    const nodes = ['n7', 'n6', 'n5', 'n4', 'n3', 'n2', 'n1'];
    const status = foldStatus(
      input({ nodes, reported: () => ({ ...quiet, failures: [failure('VerifierRejected')] }) }),
    );
    expect(conditions(status)).toMatchObject({ Programmed: 'False NodeFailed', Ready: 'False NodeFailed' });
    expect(status.failureCount).toBe(7);
    expect(status.failures?.map((f) => f.node)).toEqual(['n1', 'n2', 'n3', 'n4', 'n5']);
  });

  it('pods that another plugin connected are a reason of their own, unless something else fails too', () => {
    const of = (reason: string): Reported => ({ ...quiet, failures: [failure(reason, 'pod a/b')] });
    const status = foldStatus(input({ reported: (node) => (node === 'n2' ? of('PodNotConnected') : quiet) }));
    expect(conditions(status)).toMatchObject({ Programmed: 'False PodNotConnected', Ready: 'False PodNotConnected' });
    expect(status.conditions[2]?.message).toBe('n2: PodNotConnected: pod a/b');
    const both = foldStatus(input({ reported: (node) => of(node === 'n2' ? 'PodNotConnected' : 'KernelRefused') }));
    expect(conditions(both)).toMatchObject({ Programmed: 'False NodeFailed' });
  });

  it('valid with warnings: each text once, with its places', () => {
    const warning = (path: string, message: string) => ({ code: 'Warning' as const, path, message });
    const problems = [warning('spec.a', 'this'), warning('spec.b', 'that'), warning('spec.c', 'this')];
    const [valid] = foldStatus(input({ problems })).conditions;
    expect(valid).toMatchObject({ status: 'True', reason: 'Valid' });
    expect(valid?.message).toBe('The policy is valid. Warning: spec.a, spec.c: this; spec.b: that');
  });

  it('nothing matches', () => {
    const status = foldStatus(input({ nodes: [], endpoints: 0 }));
    expect(conditions(status)).toMatchObject({
      Programmed: 'True NoMatchingEndpoints',
      Ready: 'True NoMatchingEndpoints',
    });
  });

  it('what cannot be read is never programmed, and says what stays enforced', () => {
    const problems = [
      { code: 'InvalidSpec', path: 'spec.ingress[0]', message: 'first' },
      { code: 'InvalidSpec', path: 'spec.egress[0]', message: 'second' },
      { code: 'UnsupportedField', path: 'spec.x', message: 'third' },
    ] as const;
    const older = foldStatus(input({ generation: 4, problems, reported: () => ({ ...quiet, state: 'behind' }) }));
    expect(conditions(older)).toEqual({
      Valid: 'False InvalidSpec',
      ResolvedRefs: 'Unknown Invalid',
      Programmed: 'False Invalid',
      Ready: 'False InvalidSpec',
    });
    expect(older.conditions[0]?.message).toBe(
      'spec.ingress[0]: first; spec.egress[0]: second; generation 3 stays enforced',
    );
    const many = Array.from({ length: 40 }, (_, n) => ({
      ...problems[0],
      path: `spec.ingress[${n}]`,
      message: 'x'.repeat(90),
    }));
    const message = foldStatus(input({ generation: 4, problems: many })).conditions[0]?.message ?? '';
    expect(message.length).toBeLessThanOrEqual(1024);
    expect(message).toMatch(
      /^spec\.ingress\[0\]: x+; spec\.ingress\[1\]: x+; .* \(and 31 more\); generation 3 stays enforced$/,
    );
    // As `parsePolicy` tells of 5,000: the last of them stands for those that are not told.
    const counted = [...many, { ...problems[0], path: '$', message: '4960 more problems are not shown', count: 4960 }];
    expect(foldStatus(input({ generation: 4, problems: counted })).conditions[0]?.message).toMatch(
      /; .* \(and 499\d more\); generation 3/,
    );
    const [long] = foldStatus(
      input({ generation: 4, problems: [{ ...problems[0], message: 'x'.repeat(2000) }, problems[1]] }),
    ).conditions;
    expect(long?.message).toMatch(/^spec\.ingress\[0\]: x+… \(and 1 more\); generation 3 stays enforced$/);
    const nothing = foldStatus(input({ problems, enforcedGeneration: undefined, rules: 0 }));
    expect(nothing.conditions[0]?.message).toMatch(/nothing of this policy is enforced$/);
  });

  it('what is refused of a policy in force is said, beside how far the rest is', () => {
    const problems = [{ code: 'InvalidSpec', path: 'spec.ingress[0].toPort', message: 'unknown' }] as const;
    const found = foldStatus(input({ problems }));
    expect(conditions(found)).toEqual({
      Valid: 'False InvalidSpec',
      ResolvedRefs: 'True Resolved',
      Programmed: 'True Programmed',
      Ready: 'False InvalidSpec',
    });
    expect(found.conditions[0]?.message).toBe(
      'spec.ingress[0].toPort: unknown; what is refused allows nothing, and denies all that it may mean; the rest is enforced',
    );
  });

  it('warnings stand beside what is not supported, as far as there is room', () => {
    const problems = [
      { code: 'UnsupportedField', path: 'spec.egress[0]', message: 'no names' },
      { code: 'Warning', path: 'spec.egressDeny[0]', message: 'look here' },
    ] as const;
    const [valid] = foldStatus(input({ problems })).conditions;
    expect(valid?.message).toBe('spec.egress[0]: no names. Warning: spec.egressDeny[0]: look here');
    const long = [{ ...problems[0], message: 'x'.repeat(1000) }, problems[1]] as const;
    expect(foldStatus(input({ problems: long })).conditions[0]?.message).toMatch(/^spec\.egress\[0\]: x+$/);
  });

  it('an unsupported field is not valid, while its fail-closed reading is programmed', () => {
    const problems = [
      { code: 'UnsupportedField', path: 'spec.ingress[0].toPorts[0].rules', message: 'no L7' },
    ] as const;
    expect(conditions(foldStatus(input({ problems })))).toEqual({
      Valid: 'False UnsupportedField',
      ResolvedRefs: 'True Resolved',
      Programmed: 'True Programmed',
      Ready: 'False UnsupportedField',
    });
  });

  it('the transition time moves only when a status flips', () => {
    const first = foldStatus(input());
    const second = foldStatus(
      input({
        generation: 4,
        reported: () => ({ ...quiet, state: 'behind' }),
        previous: first,
        now: '2026-01-02T00:00:00Z',
      }),
    );
    const times = Object.fromEntries(second.conditions.map((c) => [c.type, c.lastTransitionTime]));
    expect(times).toEqual({
      Valid: '2026-01-01T00:00:00Z',
      ResolvedRefs: '2026-01-01T00:00:00Z',
      Programmed: '2026-01-02T00:00:00Z',
      Ready: '2026-01-02T00:00:00Z',
    });
  });

  it('names the port names that nobody has, each with its place, and says what follows', () => {
    const name = (n: number, asked: 'peers' | 'selected pods' = 'peers') => ({
      ...{ path: `spec.egress[${n}]`, name: `p${n}`, protocols: ['TCP'], asked },
    });
    const refs = (missingNames: StatusInput['missingNames']) => foldStatus(input({ missingNames })).conditions[1];
    const lack = (n: number): string =>
      `spec.egress[${n}]: port name "p${n}" (TCP): no peer of the rule has a container port of this name`;
    expect(refs({ first: [name(0)], ambiguous: [], more: false })?.message).toBe(
      `${lack(0)}; until one has, it matches no port`,
    );
    expect(refs({ first: [0, 1].map((n) => name(n)), ambiguous: [], more: true })?.message).toBe(
      `${lack(0)}; ${lack(1)}; until one has, such a name matches no port; there may be more: not all port names were looked for`,
    );
    expect(refs({ first: [], ambiguous: [], more: true })).toMatchObject({
      status: 'True',
      message: expect.stringMatching(/^No missing reference was found, but/),
    });
    // The end is said however long the names are.
    const long = [{ ...name(0), path: 'x'.repeat(2_000) }, name(1, 'selected pods')];
    expect(refs({ first: long, ambiguous: [], more: false })?.message).toMatch(
      / \(and 1 more\); until one has, such a name matches no port$/,
    );
  });
});

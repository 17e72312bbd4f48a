import { createHash } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  canonicalSelector,
  formatLabels,
  formatSelector,
  isSecurityRelevant,
  labelsKey,
  matches,
  parseLabel,
  parseLabels,
  parseSelector,
  parseSelectorKey,
  podIdentityLabels,
  type Requirement,
  SelectorError,
  selectorHash,
  selectorText,
} from './index.ts';

function problemsOf(json: unknown): string[] {
  try {
    parseSelector(json, 's');
  } catch (error) {
    if (error instanceof SelectorError) return error.problems.map(({ path }) => path);
    throw error;
  }
  return [];
}

describe('keys', () => {
  it.each([
    ['app', 'any:app'],
    [':app', 'any:app'],
    ['unspec:app', 'any:app'],
    ['any:app', 'any:app'],
    ['k8s:app', 'k8s:app'],
    ['K8s:app', 'K8s:app'],
    ['reserved:host', 'reserved:host'],
    ['k8s:example.com/app', 'k8s:example.com/app'],
    [
      'k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name',
      'k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name',
    ],
  ])('%s is %s', (text, key) => {
    expect(parseSelectorKey(text)).toBe(key);
  });

  it.each(['', 'a/b/c', 'k8s:a:b', '-a', 'a-', '/a', 'a/', 'k8s:', 'Ex.com/a', `${'x'.repeat(64)}`, 'a b'])(
    'refuses %j',
    (text) => {
      expect(() => parseSelectorKey(text)).toThrow(expect.objectContaining({ code: 'ERR_WEIR_LABEL' }));
    },
  );

  it('have no source in Kubernetes selectors', () => {
    expect(parseSelectorKey('app', { keys: 'kubernetes' })).toBe('k8s:app');
    expect(() => parseSelectorKey('k8s:app', { keys: 'kubernetes' })).toThrow('remove the source');
  });
});

describe('parseSelector', () => {
  it('writes both forms as sorted requirements', () => {
    const selector = parseSelector(
      {
        matchExpressions: [
          { key: 'tier', operator: 'In', values: ['b', 'a', 'a'] },
          { key: 'x', operator: 'Exists' },
        ],
        matchLabels: { app: 'web' },
      },
      's',
    );
    expect(selector.requirements).toEqual([
      { key: 'any:app', operator: 'In', values: ['web'] },
      { key: 'any:tier', operator: 'In', values: ['a', 'b'] },
      { key: 'any:x', operator: 'Exists', values: [] },
    ]);
    expect(formatSelector(selector)).toBe('any:app=web, any:tier in (a, b), any:x');
    expect(parseSelector({ matchLabels: null }, 's')).toEqual({ requirements: [] });
  });

  it('names the path of each problem, all of them', () => {
    expect(problemsOf(null)).toEqual(['s']);
    expect(problemsOf([])).toEqual(['s']);
    expect(problemsOf({ app: 'x' })).toEqual(['s.app']);
    expect(
      problemsOf({
        matchLabels: { 'a/b/c': 'x', app: 80, ok: 'a b' },
        matchExpressions: [
          { key: 'a', operator: 'in', values: ['x'] },
          { key: 'a', operator: 'In' },
          { key: 'a', operator: 'Exists', values: ['x'] },
          { operator: 'Exists' },
          null,
          { key: 'a', operator: 'In', values: ['x'.repeat(64)], extra: 1 },
        ],
      }),
    ).toEqual([
      's.matchLabels["a/b/c"]',
      's.matchLabels["app"]',
      's.matchLabels["ok"]',
      's.matchExpressions[0].operator',
      's.matchExpressions[1].values',
      's.matchExpressions[2].values',
      's.matchExpressions[3].key',
      's.matchExpressions[4]',
      's.matchExpressions[5].extra',
      's.matchExpressions[5].values[0]',
    ]);
  });
});

const requirementArbitrary: fc.Arbitrary<Requirement> = fc.record({
  key: fc.constantFrom('any:app', 'k8s:app', 'any:host', 'reserved:host', 'any:p'),
  operator: fc.constantFrom('In' as const, 'NotIn' as const, 'Exists' as const, 'DoesNotExist' as const),
  values: fc
    .tuple(
      fc.array(fc.constantFrom('', 'a', 'b', 'c'), { minLength: 1, maxLength: 3 }),
      fc.constantFrom(0, 5, 6, 7, 50),
    )
    .map(([values, others]) => [...values, ...Array.from({ length: others }, (_, n) => `v${n}`)]),
});
const labelsArbitrary = fc.dictionary(
  fc.constantFrom('k8s:app', 'cni:app', 'k8s:host', 'reserved:host', 'k8s:x/app', 'k8s:app.p'),
  fc.constantFrom('', 'a', 'b'),
);

describe('matches', () => {
  it('reads a key without a source under every source', () => {
    const host = parseSelector({ matchLabels: { host: '' } }, 's');
    expect(matches(host, { 'reserved:host': '' })).toBe(true);
    expect(matches(host, { 'k8s:host': '' })).toBe(true);
    expect(matches(host, { 'k8s:ahost': '' })).toBe(false);
    const bound = parseSelector({ matchLabels: { 'reserved:host': '' } }, 's');
    expect(matches(bound, { 'k8s:host': '' })).toBe(false);
    expect(matches(parseSelector({}, 's'), {})).toBe(true);
    expect(
      matches(parseSelector({ matchExpressions: [{ key: 'a', operator: 'NotIn', values: ['x'] }] }, 's'), {}),
    ).toBe(true);
  });

  it('looks at each value once, however many label sets are asked', () => {
    let looks = 0;
    const values = new Proxy(
      Array.from({ length: 1_000 }, (_, n) => `v${n}`),
      {
        get: (list, name) => {
          looks += 1;
          return Reflect.get(list, name) as unknown;
        },
      },
    );
    const selector = { requirements: [{ key: 'k8s:app', operator: 'NotIn' as const, values }] };
    for (let n = 0; n < 1_000; n += 1) expect(matches(selector, { 'k8s:app': `v${n * 2}` })).toBe(n >= 500);
    expect(looks).toBeLessThan(10_000);
  });

  it('equals a plain model', () => {
    fc.assert(
      fc.property(fc.array(requirementArbitrary, { maxLength: 3 }), labelsArbitrary, (requirements, labels) => {
        const expected = requirements.every(({ key, operator, values }) => {
          const [source, name] = [key.slice(0, key.indexOf(':')), key.slice(key.indexOf(':') + 1)];
          const found = Object.entries(labels)
            .map(([label, value]) => ({
              source: label.slice(0, label.indexOf(':')),
              name: label.slice(label.indexOf(':') + 1),
              value,
            }))
            .filter((label) => label.name === name && (source === 'any' || label.source === source));
          if (operator === 'Exists') return found.length > 0;
          if (operator === 'DoesNotExist') return found.length === 0;
          const hit = found.some(({ value }) => values.includes(value));
          return operator === 'In' ? hit : !hit;
        });
        expect(matches({ requirements }, labels)).toBe(expected);
      }),
      { numRuns: 500 },
    );
  });
});

describe('selectorHash', () => {
  it('does not depend on order or doubles, and tells different selectors apart', () => {
    fc.assert(
      fc.property(
        fc.array(requirementArbitrary, { maxLength: 4 }),
        fc.array(requirementArbitrary, { maxLength: 4 }),
        (a, b) => {
          const turned = [...a, ...a].reverse().map((one) => ({ ...one, values: [...one.values].reverse() }));
          expect(selectorHash({ requirements: turned })).toBe(selectorHash({ requirements: a }));
          const equal =
            JSON.stringify(canonicalSelector({ requirements: a })) ===
            JSON.stringify(canonicalSelector({ requirements: b }));
          expect(selectorHash({ requirements: a }) === selectorHash({ requirements: b })).toBe(equal);
        },
      ),
    );
  });

  it('is the whole SHA-256 of the canonical text: of what is cut short, somebody finds two selectors with one name', () => {
    fc.assert(
      fc.property(fc.array(requirementArbitrary, { maxLength: 4 }), (requirements) => {
        const whole = createHash('sha256').update(selectorText({ requirements })).digest('hex');
        expect(selectorHash({ requirements })).toBe(whole);
      }),
    );
  });
});

describe('labels', () => {
  it('parse and print', () => {
    expect(parseLabel('k8s:app=web')).toEqual({ source: 'k8s', key: 'app', value: 'web' });
    expect(parseLabel('app=a:b=c')).toEqual({ source: 'unspec', key: 'app', value: 'a:b=c' });
    expect(parseLabel('reserved:host')).toEqual({ source: 'reserved', key: 'host', value: '' });
    expect(() => parseLabel('k8s:=x')).toThrow('no key');
    expect(() => parseLabel('any:a=x')).toThrow('any');
    const labels = { 'k8s:b': '1', 'k8s:a': '2' };
    expect(formatLabels(labels)).toEqual(['k8s:a=2', 'k8s:b=1']);
    expect(parseLabels(formatLabels(labels))).toEqual(labels);
    expect(labelsKey(labels)).toBe(labelsKey({ 'k8s:a': '2', 'k8s:b': '1' }));
    expect(labelsKey({ 'k8s:a': '1,k8s:b=2' })).not.toBe(labelsKey({ 'k8s:a': '1', 'k8s:b': '2' }));
  });

  it('of an identity are the security-relevant ones and the synthetic ones', () => {
    expect(
      podIdentityLabels({
        namespace: 'a',
        namespaceLabels: { team: 'red', 'kubernetes.io/metadata.name': 'a' },
        podLabels: {
          app: 'web',
          'app.kubernetes.io/name': 'web',
          'pod-template-hash': '5d',
          'statefulset.kubernetes.io/pod-name': 'web-0',
          'topology.kubernetes.io/zone': 'z',
          'k8s.io/x': 'y',
          'node.beta.kubernetes.io/x': 'y',
        },
        serviceAccount: 'sa',
        cluster: 'c1',
      }),
    ).toEqual({
      'k8s:app': 'web',
      'k8s:app.kubernetes.io/name': 'web',
      'k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name': 'a',
      'k8s:io.cilium.k8s.namespace.labels.team': 'red',
      'k8s:io.cilium.k8s.policy.cluster': 'c1',
      'k8s:io.cilium.k8s.policy.serviceaccount': 'sa',
      'k8s:io.kubernetes.pod.namespace': 'a',
    });
    expect(isSecurityRelevant('io.kubernetes.other')).toBe(false);
    expect(isSecurityRelevant('io.kubernetes.pod.namespace')).toBe(true);
  });

  it('of the cluster cannot be forged by a pod', () => {
    const forged = podIdentityLabels({
      namespace: 'a',
      podLabels: {
        'io.kubernetes.pod.namespace': 'b',
        'io.cilium.k8s.namespace.labels.team': 'blue',
        'io.cilium.k8s.policy.serviceaccount': 'admin',
        'io.cilium.k8s.policy.cluster': 'other',
      },
    });
    expect(forged).toEqual({ 'k8s:io.cilium.k8s.policy.cluster': 'default', 'k8s:io.kubernetes.pod.namespace': 'a' });
  });
});

import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { nested } from '../../test/hostile.ts';
import { parseDocuments } from './documents.ts';
import { DocumentError } from './errors.ts';
import { validateFiles } from './validate.ts';

const deepPolicy = (levels: number) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'p', namespace: 'a' },
  spec: { endpointSelector: {}, ingress: [{}], bogus: nested(levels) },
});
const flow = (levels: number) => `apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p, namespace: a}
spec: {endpointSelector: {}, ingress: [{}], bogus: ${'['.repeat(levels)}${']'.repeat(levels)}}`;
/** Of 1,000 levels and more, `JSON.stringify` may take more than the stack. */
const deepText = (levels: number) =>
  JSON.stringify(deepPolicy(0)).replace('"bogus":1', `"bogus":${'['.repeat(levels)}${']'.repeat(levels)}`);
const judged = (text: string) =>
  validateFiles([{ name: 'file', documents: parseDocuments(text, 'file') }]).findings.map(
    ({ path, message }) => `${path}: ${message.split(':')[0]}`,
  );

describe('documents that are nested deeper than a policy', () => {
  it.each([
    ['JSON of 120 levels', JSON.stringify(deepPolicy(120))],
    ['JSON of 1,500 levels', deepText(1_500)],
    ['JSON of 9,900 levels', deepText(9_900)],
    ['YAML of 120 levels', flow(120)],
    ['YAML of 900 levels', flow(900)],
  ])('%s is judged as in the cluster, where the depths are not looked at', (_, text) => {
    expect(judged(text)).toEqual(['spec.bogus: unknown field "bogus"']);
  });

  it('a list holds policies as deep as they may be by themselves', () => {
    // What is deepest is at level 99 of the policy, and at 101 of the List.
    const policy = { ...deepPolicy(0), spec: { endpointSelector: {}, ingress: [{}], bogus: nested(98) } };
    const [alone] = parseDocuments(JSON.stringify(policy), 'file');
    const [listed] = parseDocuments(JSON.stringify({ kind: 'List', items: [policy] }), 'file');
    expect(listed?.value).toEqual(policy);
    expect(alone?.value).toEqual(policy);
  });

  it('YAML that is deeper than it can be read is not said to be something else', () => {
    expect(() => parseDocuments(flow(50_000), 'file')).toThrow(
      /^file cannot be read as YAML or JSON: nesting exceeded/,
    );
  });

  it('an alias that leads back to itself, or stands for very much, is refused', () => {
    expect(() => parseDocuments('a: &a {b: [*a]}', 'file')).toThrow(/^file has an alias that leads back to itself$/);
    const ten = (name: string) => `[${Array.from({ length: 10 }, () => `*${name}`).join(', ')}]`;
    const laughs = ['a0: &a0 [1]', ...[1, 2, 3, 4, 5, 6, 7].map((n) => `a${n}: &a${n} ${ten(`a${n - 1}`)}`)].join('\n');
    expect(() => parseDocuments(laughs, 'file')).toThrow(/^file has aliases that stand for more than 1000000 values$/);
    expect(parseDocuments('a: &a [1]\nb: [*a, *a]', 'file')).toMatchObject([
      { name: 'file', value: { a: [1], b: [[1], [1]] } },
    ]);
  });
});

it('items of a list have the kind that the list says, where they have none', () => {
  const item = { metadata: { name: 'p', namespace: 'a' }, spec: { endpointSelector: {}, ingress: [{ bogus: 1 }] } };
  const list = { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicyList', items: [item] };
  expect(judged(JSON.stringify(list))).toEqual(['spec.ingress[0].bogus: unknown field "bogus"']);
});

it('whatever the text is, it is read or refused', () => {
  const pieces = [
    'a: ',
    '- ',
    '"\\U00110000"',
    '"\\ud800"',
    '&a ',
    '*a',
    '<<: ',
    '{',
    '}',
    '[',
    ']',
    '\n',
    '  ',
    '---\n',
    '...',
    '%YAML 1.2',
    '!!set ',
  ]
    .concat([
      '!!binary x',
      '? ',
      '|\n',
      '>-\n',
      '#',
      "'",
      '"',
      '\t',
      '\r\n',
      '\ufeff',
      'kind: List\n',
      'items: ',
      'kind: CiliumNetworkPolicy\n',
    ])
    .concat([
      'apiVersion: cilium.io/v2\n',
      'metadata: ',
      'spec: ',
      '__proto__: ',
      'constructor: ',
      '.inf',
      '~',
      '\u0000',
      '\u2028',
    ]);
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...pieces), { maxLength: 14 }), (parts) => {
      const text = parts.join('');
      try {
        judged(text);
      } catch (error) {
        if (!(error instanceof DocumentError)) throw error;
      }
    }),
    { numRuns: 3_000 },
  );
});

import { describe, expect, it } from '@jest/globals';
import type { AdmissionAnswer, AdmissionRequest } from '../parts/contract.ts';
import { reviewPolicy } from './policy-review.ts';

const LIMITS = { rulesPerPolicy: 5, selectorsPerPolicy: 10 };
const web = { endpointSelector: { matchLabels: { app: 'web' } } };
const cnp = (spec: object, more: object = {}, metadata: object = {}): object => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'p', namespace: 'n', ...metadata },
  spec,
  ...more,
});
const good = cnp({ ...web, ingress: [{ toPorts: [{ ports: [{ port: '80' }] }] }] });
const bad = cnp({ ...web, ingress: [{ toPort: [] }, { toPorts: [{ ports: [{ port: '010' }] }] }] });
const kind = (name: string) => ({ group: 'cilium.io', version: 'v2', kind: name });

function review(object: unknown, more: Partial<AdmissionRequest> = {}): AdmissionAnswer {
  const asked = { uid: 'u', operation: 'CREATE', kind: kind('CiliumNetworkPolicy'), object };
  return reviewPolicy({ ...asked, ...more }, LIMITS);
}
const change = (object: unknown, oldObject: unknown): AdmissionAnswer =>
  review(object, { operation: 'UPDATE', oldObject });

describe('a policy that is applied', () => {
  it('passes where it is valid', () => {
    expect(review(good)).toEqual({ allowed: true });
  });

  it('is refused with all that is wrong, a line each, as its path and what to write', () => {
    const { allowed, message, warnings } = review(bad);
    expect({ allowed, warnings }).toEqual({ allowed: false, warnings: undefined });
    const lines = message?.split('\n') ?? [];
    expect(lines).toHaveLength(3);
    expect(lines[0]).toBe('the policy is not valid:');
    expect(lines[1]).toMatch(/^spec\.ingress\[0\]\.toPort: unknown field "toPort": did you mean toPorts\?$/);
    expect(lines[2]).toMatch(/^spec\.ingress\[1\]\.toPorts\[0\]\.ports\[0\]\.port: "010" /);
  });

  it('passes with a warning for what is not enforced, and for what does not do what it seems to', () => {
    const http = { ports: [{ port: '80', protocol: 'TCP' }], rules: { http: [{ method: 'GET' }] } };
    const ports = [{ port: '80', endPort: 70, protocol: 'TCP' }];
    const { allowed, warnings } = review(cnp({ ...web, ingress: [{ toPorts: [http] }, { toPorts: [{ ports }] }] }));
    expect(allowed).toBe(true);
    expect(warnings).toEqual([
      expect.stringMatching(/^not enforced: spec\.ingress\[0\]\.toPorts\[0\]\.rules/),
      expect.stringMatching(/^spec\.ingress\[1\]\.toPorts\[0\]\.ports\[0\]\.endPort: 70 is less/),
    ]);
  });

  it('is told of nothing that depends on the cluster: whether its pods have addresses of two families', () => {
    const label = { fromEndpoints: [{ matchLabels: { 'reserved:world': '' } }] };
    const words = [{ fromEntities: ['world-ipv4'] }, label];
    expect(review(cnp({ ...web, ingress: words }))).toEqual({ allowed: true });
    const { allowed, message } = review(cnp({ ...web, ingress: [...words, { fromCIDR: ['10.0.0.0/33'] }] }));
    expect([allowed, message?.split('\n').length]).toEqual([false, 2]);
  });

  it('is told of briefly, whatever it holds', () => {
    const fields = Object.fromEntries(Array.from({ length: 999 }, (_, at) => [`f${at}\n${'x'.repeat(900)}`, at]));
    const { allowed, message = '' } = review(cnp({ ...web, ...fields, ingress: [{}] }));
    expect(allowed).toBe(false);
    const lines = message.split('\n');
    expect(lines).toHaveLength(22);
    expect(lines.at(-1)).toBe('and 979 more');
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(1_000);
    const long = `k${'y'.repeat(300)}`;
    const unsupported = cnp({
      ...web,
      ingress: [{ toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], rules: { l7proto: long } }] }],
    });
    for (const warning of review(unsupported).warnings ?? []) expect(warning.length).toBeLessThanOrEqual(256);
  });

  it('is not read where it asks for too much', () => {
    const { allowed, message } = review(cnp({ ...web, ingress: Array.from({ length: 6 }, () => ({})) }));
    expect(allowed).toBe(false);
    expect(message).toMatch(/^the policy is not valid:\nthe policy needs 6 rules, and one may need 5: /);
  });

  it('is read by its own kind', () => {
    const { allowed, message } = review(cnp(web), { kind: kind('CiliumClusterwideNetworkPolicy') });
    expect(allowed).toBe(false);
    expect(message).toContain('CiliumClusterwideNetworkPolicy');
  });
});

describe('a change of a policy that is invalid', () => {
  const stored = bad as { readonly spec: object };

  it('passes where the spec stays: labels, finalizers, status, by whatever order of its fields', () => {
    const reordered = Object.fromEntries(Object.entries(stored.spec).reverse());
    expect(change(cnp(reordered, { status: {} }, { labels: { a: 'b' }, finalizers: [] }), bad)).toEqual({
      allowed: true,
    });
  });

  it('is judged where the spec changes, to a valid one or to another that is not', () => {
    expect(change(good, bad)).toEqual({ allowed: true });
    expect(change(bad, good).allowed).toBe(false);
    expect(change(cnp(stored.spec, { specs: [{}] }), bad).allowed).toBe(false);
  });

  it('and its removal passes', () => {
    expect(review(null, { operation: 'DELETE', oldObject: bad })).toEqual({ allowed: true });
  });
});

it('what is no policy of ours, or no request that can be read, is not judged', () => {
  expect(review(bad, { kind: kind('CiliumIdentity') })).toEqual({ allowed: true });
  expect(reviewPolicy({ uid: 'u' }, LIMITS)).toEqual({ allowed: true });
  for (const object of [undefined, 'x', []]) expect(review(object)).toEqual({ allowed: true });
});

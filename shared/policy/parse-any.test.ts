/** Whatever an object holds, it is read, or its problems are told with their paths. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { type ParseResult, parseBareRules, parsePolicy } from './index.ts';
import { cnp, ingress, type Json, WEB } from './testing/parsed.ts';
import { policyArbitrary } from './testing/worlds.ts';

describe('any JSON', () => {
  const junk = fc.oneof(fc.jsonValue({ maxDepth: 3 }), fc.constantFrom<unknown>(null, [], {}, [null], '', 0, -1, true));
  /** Puts `value` in place of one part of the JSON, chosen by `at`. */
  const spoil = (json: unknown, at: number, value: unknown): unknown => {
    const places: { holder: Json; key: string }[] = [];
    const copy = structuredClone(json);
    const walk = (node: unknown) => {
      if (typeof node !== 'object' || node === null) return;
      for (const key of Object.keys(node)) {
        const holder = node as Json;
        places.push({ holder, key });
        walk(holder[key]);
      }
    };
    walk(copy);
    const place = places[at % Math.max(1, places.length)];
    if (place !== undefined) place.holder[place.key] = value;
    return copy;
  };

  it('never makes the parser throw, and every problem has a path', () => {
    const check = ({ rules, refused, problems }: ParseResult) => {
      for (const { path, message } of problems) {
        expect(path).not.toBe('');
        expect(message.length).toBeGreaterThan(10);
      }
      if (refused) expect([rules, problems.some(({ code }) => code === 'InvalidSpec')]).toEqual([[], true]);
      for (const rule of rules) expect(rule.elements.length).toBeGreaterThan(0);
    };
    fc.assert(
      fc.property(
        policyArbitrary,
        fc.array(fc.tuple(fc.nat(), junk), { minLength: 1, maxLength: 3 }),
        ({ object, kind }, edits) => {
          const spoiled = edits.reduce<unknown>((json, [at, value]) => spoil(json, at, value), object);
          check(parsePolicy(spoiled, kind));
          check(parseBareRules([(spoiled as Json).spec]));
        },
      ),
      { numRuns: 500 },
    );
    fc.assert(fc.property(fc.jsonValue(), (json) => check(parsePolicy(json, 'CiliumNetworkPolicy'))));
    check(
      parsePolicy(JSON.parse('{"__proto__": {"spec": {}}, "metadata": {"constructor": 1}}'), 'CiliumNetworkPolicy'),
    );
  });
});

describe('the fields that a message proposes', () => {
  const proposed = ({ problems }: ParseResult) => problems.map(({ message }) => message);

  it('are those that are taken there', () => {
    const [rule] = proposed(cnp({ endpointSelector: WEB, ingress: [{}], bogus: 1 }));
    expect(rule).toMatch(/: the fields here are endpointSelector, ingress, /);
    const [element] = proposed(ingress({ bogus: 1 }));
    expect(element).not.toContain('fromRequires');
    const denied = proposed(cnp({ endpointSelector: WEB, egressDeny: [{ bogus: 1, toPorts: [{ bogus: 1 }] }] }));
    expect(denied).toHaveLength(2);
    expect(denied.join()).not.toMatch(/toFQDNs|authentication|rules/);
  });

  it('are nodes, too, in a cluster-wide policy', () => {
    const spec = { endpointSelector: WEB, ingress: [{}], bogus: 1 };
    const result = parsePolicy({ metadata: { name: 'p' }, spec }, 'CiliumClusterwideNetworkPolicy');
    expect(proposed(result)[0]).toContain('nodeSelector');
  });

  it('what is refused there is told once, by its own reason', () => {
    expect(proposed(cnp({ endpointSelector: WEB, nodeSelector: {}, ingress: [{}] })).join()).not.toContain('unknown');
    expect(proposed(ingress({ fromRequires: [{}] }))).toEqual([
      'fromRequires was removed from the language: write its labels into each selector of fromEndpoints; until then it allows nothing',
    ]);
  });
});

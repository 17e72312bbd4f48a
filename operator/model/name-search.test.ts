import { describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import { goOn, MOST_LOOKS, type NameSearch, PIECE_LOOKS, type Pods, searchFor } from './name-search.ts';

/** Members that are walked for one name in one set. */
const WALK = 100;

function rule(index: number, names: readonly string[], hashes: readonly string[]): ResolvedRule {
  return {
    subject: 's',
    direction: 'egress',
    verdict: 'allow',
    defaultDeny: true,
    cookie: 1 + index,
    path: `spec.egress[${index}]`,
    peers: hashes.map((peerSet) => ({ peerSet })),
    ports: names.flatMap((name) => (['TCP', 'UDP'] as const).map((protocol) => ({ protocol, name }))),
  };
}

const texts = (count: number, prefix: string): string[] => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

/** Somebody gives every name; in a set only those of `given` (`UDP/n3 h7`) are. */
function pods(given: ReadonlySet<string>, uninhabited: ReadonlySet<string> = new Set()): Pods {
  return {
    anybody: () => true,
    anybodyGives: () => true,
    gives: (hash, name) => ({ is: given.has(`${name} ${hash}`), looks: WALK }),
    isInhabited: (hash) => ({ is: !uninhabited.has(hash), looks: 1 }),
  };
}

function finish(begun: NameSearch, of: Pods): { readonly search: NameSearch; readonly pieces: number } {
  let [search, pieces] = [begun, 0];
  for (; search.at !== undefined; pieces += 1) {
    const after = goOn(search, of);
    expect(after.looks - search.looks).toBeLessThan(PIECE_LOOKS + WALK + 10);
    search = after;
  }
  return { search, pieces };
}

describe('a search for port names', () => {
  it('goes on where the piece before ended: each name of each rule is found, missing, or not asked for as nobody is there', () => {
    const [names, hashes] = [texts(7, 'n'), texts(11, 'h')];
    const rules = [rule(0, names, hashes), rule(1, names, ['nobody']), rule(2, names, hashes.slice(0, 3))];
    // By the last look of a name, by one in the middle, and by one that only the first rule asks.
    const given = new Set(['UDP/n0 h10', 'TCP/n3 h1', 'UDP/n3 h2', 'UDP/n5 h2']);
    const { search, pieces } = finish(searchFor('p', rules), pods(given, new Set(['nobody'])));
    expect(pieces).toBeGreaterThan(2);
    expect(search.found).toEqual({
      first: [
        ...['n1', 'n2', 'n4', 'n6'].map((name) => ({ path: 'spec.egress[0]', name })),
        { path: 'spec.egress[2]', name: 'n0' },
      ].map((one) => ({ ...one, protocols: ['TCP', 'UDP'], asked: 'peers' })),
      count: 4 + 5,
      unasked: 0,
    });
  });

  it('ends, and says how many names it did not look for', () => {
    const [names, hashes] = [texts(100, 'n'), texts(50, 'h')];
    const { search } = finish(searchFor('p', [rule(0, names, hashes), rule(1, names, hashes)]), pods(new Set()));
    expect(search.looks).toBeLessThan(MOST_LOOKS + PIECE_LOOKS + WALK + 10);
    const { count, unasked } = search.found;
    expect(count).toBeGreaterThan(0);
    expect(unasked).toBeGreaterThan(100);
    expect(count + unasked).toBe(200);
  });

  it('does not look through sets for a name that nobody gives', () => {
    const [names, hashes] = [texts(100, 'n'), texts(50, 'h')];
    const none = { ...pods(new Set()), anybodyGives: () => false };
    const { search } = finish(searchFor('p', [rule(0, names, hashes)]), none);
    expect(search.looks).toBeLessThan(1_000);
    expect(search.found.count).toBe(100);
  });
});

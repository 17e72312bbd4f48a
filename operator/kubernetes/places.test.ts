import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { type Entry, Places } from './places.ts';

/** Requests that are made, in their order, and end when they are told to. */
class Lab {
  readonly places: Places;
  readonly made: string[] = [];
  readonly #ends: (() => void)[] = [];

  constructor(most: number) {
    this.places = new Places(most);
  }

  get running(): number {
    return this.#ends.length;
  }

  async come(entry: Entry): Promise<void> {
    await this.places.enter(entry);
    this.made.push(entry.key);
    await new Promise<void>((resolve) => this.#ends.push(resolve));
    this.places.leave();
  }

  /** The request that has run longest ends. */
  async end(): Promise<void> {
    this.#ends.shift()?.();
    await calm();
  }

  async endAll(): Promise<void> {
    await calm();
    while (this.running > 0) await this.end();
  }
}

const calm = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('places', () => {
  const load = async (): Promise<Lab> => {
    const lab = new Lab(1);
    for (const key of ['a1', 'a2', 'a3', 'a4']) lab.come({ key, owner: 'a' }).catch(() => undefined);
    await calm();
    return lab;
  };

  it('are taken by owners in turns, and by the requests of one in their order', async () => {
    const lab = await load();
    for (const key of ['b1', 'b2', 'c1']) void lab.come({ key, owner: key.slice(0, 1) });
    await lab.endAll();
    expect(lab.made).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
  });

  it('are taken by what is urgent before the owner’s others, and not before those of others', async () => {
    const lab = await load();
    void lab.come({ key: 'b1', owner: 'b' });
    void lab.come({ key: 'a5', owner: 'a', urgent: true });
    await lab.endAll();
    expect(lab.made).toEqual(['a1', 'a5', 'b1', 'a2', 'a3', 'a4']);
  });

  it.each(['before it comes', 'while it waits'])(
    'are taken once by what another asks for %s, in the turn that is first',
    async (when) => {
      const lab = await load();
      if (when === 'before it comes') lab.places.ask('a5', 'b');
      void lab.come({ key: 'a5', owner: 'a' });
      if (when === 'while it waits') lab.places.ask('a5', 'b');
      void lab.come({ key: 'b1', owner: 'b' });
      await lab.endAll();
      expect(lab.made).toEqual(['a1', 'a2', 'a5', 'a3', 'b1', 'a4']);
    },
  );

  it('are given to nobody any more once they are closed: whoever waits is told why', async () => {
    const lab = await load();
    const late = lab.come({ key: 'c2', owner: 'c' });
    const why = new Error('the term ends');
    lab.places.close(why);
    await expect(late).rejects.toBe(why);
    await expect(lab.come({ key: 'd1', owner: 'd' })).rejects.toBe(why);
    await lab.end();
    expect(lab.made).toEqual(['a1']);
  });
});

const action = fc.oneof(
  fc.record({ owner: fc.constantFrom('a', 'b', 'c'), urgent: fc.boolean() }),
  fc.record({ asks: fc.constantFrom('a', 'b', 'c'), nth: fc.nat(20) }),
  fc.constant('end' as const),
);

it('whatever the trace: each request is made once, so many run at once, and nobody waits for two of another for one of its own', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 3 }), fc.array(action, { maxLength: 60 }), async (most, trace) => {
      const lab = new Lab(most);
      const came: { key: string; owner: string; after: number }[] = [];
      const asked = new Set<string>();
      for (const each of trace) {
        if (each === 'end') await lab.end();
        else if ('asks' in each) {
          const waiting = came.filter(({ key }) => !lab.made.includes(key));
          const { key } = waiting[each.nth % waiting.length] ?? {};
          if (key === undefined) continue;
          lab.places.ask(key, each.asks);
          asked.add(key);
        } else {
          const key = `${each.owner}${came.length}`;
          came.push({ key, owner: each.owner, after: lab.made.length });
          void lab.come({ key, ...each });
        }
        await calm();
        expect(lab.running).toBeLessThanOrEqual(most);
        if (lab.made.length < came.length) expect(lab.running).toBe(most);
      }
      await lab.endAll();
      expect([...lab.made].sort()).toEqual(came.map(({ key }) => key).sort());
      for (const { key, owner, after } of came) {
        const ahead = lab.made.slice(after, lab.made.indexOf(key)).filter((other) => !asked.has(other));
        const of = (whom: string): number => ahead.filter((other) => other.startsWith(whom)).length;
        // What others asked for goes in their turns, and may have taken one of the owner's.
        const turns = of(owner) + 1 + asked.size;
        for (const other of ['a', 'b', 'c']) if (other !== owner) expect(of(other)).toBeLessThanOrEqual(turns);
      }
    }),
    { numRuns: 300 },
  );
});

import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { REST_MS } from './address-leases.ts';
import { ALL, Node } from './testing/ipam-node.ts';

it('equals a plain model: nobody gets what somebody has, had lately, or is said to have', () => {
  const address = fc.constantFrom(...ALL);
  const name = fc.constantFrom('a', 'b', 'c', 'd');
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('add' as const), name }) },
    { weight: 4, arbitrary: fc.record({ do: fc.constant('del' as const), at: fc.nat(20) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('fail' as const), name }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const), lost: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('route' as const), address, there: fc.boolean() }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('slice' as const), name, address: fc.option(address) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('pod' as const), name, address: fc.option(address) }) },
    { weight: 4, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat(REST_MS) }) },
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const node = new Node();
      // The model: what a careful person would write down.
      const freed = new Map<string, number>();
      const slices = new Map<string, string>();
      const pods = new Map<string, string>();
      let lostAt = 0;
      let last: string | undefined;
      const mayHave = (address: string, uid: string): boolean =>
        !node.live().includes(address) &&
        !node.kernel.has(address) &&
        ![...slices].some(([other, has]) => has === address && other !== uid) &&
        ![...pods].some(([other, has]) => has === address && other !== uid) &&
        node.now >= (freed.get(address) ?? 0) + REST_MS &&
        node.now >= lostAt;
      const allocate = (uid: string): string | undefined => {
        const free = ALL.filter((address) => mayHave(address, uid));
        const kernel = [...node.kernel.values()];
        if (free.length === 0) {
          expect(() => node.ipam.allocate({ podUid: uid, kernel })).toThrow(/no (free )?address/);
          return undefined;
        }
        const [got = ''] = node.ipam.allocate({ podUid: uid, kernel });
        expect(free).toContain(got);
        // In a circle, unless the circle was forgotten.
        if (last !== undefined)
          expect(got).toBe(free.find((each) => ALL.indexOf(each) > ALL.indexOf(last ?? '')) ?? free[0]);
        last = got;
        return got;
      };
      for (const step of steps) {
        if (step.do === 'add') {
          const got = allocate(step.name);
          if (got === undefined) continue;
          node.attach(got);
          node.ipam.release([got]);
        } else if (step.do === 'fail') {
          const got = allocate(step.name);
          if (got !== undefined) node.ipam.release([got]);
        } else if (step.do === 'del') {
          const live = node.live();
          const gone = live[step.at % Math.max(1, live.length)];
          if (gone === undefined) continue;
          node.remove(gone);
          freed.set(gone, node.now);
        } else if (step.do === 'restart') {
          const { lost } = step;
          const [was, said] = [slices, pods].map((each) => [...each]);
          node.restart(lost);
          for (const [name, address] of was ?? []) node.slice(name, address, name);
          for (const [name, address] of said ?? []) node.pod(name, address);
          if (lost) lostAt = node.now + REST_MS;
          // Of an ADD that failed nothing is written.
          last = node.leases.last(4);
        } else if (step.do === 'route') node.route(step.address, step.there);
        else if (step.do === 'wait') node.now += step.ms;
        else {
          const of = step.do === 'slice' ? slices : pods;
          if (step.address === null) of.delete(step.name);
          else of.set(step.name, step.address);
          if (step.do === 'slice') node.slice(step.name, step.address ?? undefined, step.name);
          else node.pod(step.name, step.address ?? undefined);
        }
        expect(new Set(node.live()).size).toBe(node.live().length);
      }
    }),
    { numRuns: 300 },
  );
});

import { expect, it } from '@jest/globals';
import type { ClassRows, CompiledDirection, CompiledRow, Direction } from '@weir/policy';
import fc from 'fast-check';
import type { SlotRow } from '../tables.ts';
import { assignNumbers, classOf, distinguisher, NO_NUMBERS } from './classes.ts';
import { DIRECTIONS } from './rows.ts';

const PROTOCOLS = [0, 1, 6, 17] as const;
const PORTS = 4;
/** Unknown, pods, the world, and reserved ones. */
const IDENTITIES = [0, 1, 2, 256, 257, 258, 259, 0x01000001, 0x03000001];

const decision = fc.option(
  fc.record({ verdict: fc.constantFrom('allow' as const, 'deny' as const), cookie: fc.integer({ min: 1, max: 2 }) }),
  { nil: undefined },
);

/** Rows as the compiler makes them: what neighbours decide alike is one row. */
const rows: fc.Arbitrary<ClassRows> = fc
  .tuple(...PROTOCOLS.map((protocol) => fc.array(decision, { minLength: 0, maxLength: protocol === 0 ? 1 : PORTS })))
  .map((all) =>
    all.flatMap((decisions, at) => {
      const made: CompiledRow[] = [];
      for (const [port, decided] of decisions.entries()) {
        if (decided === undefined) continue;
        const last = made.at(-1);
        const goes = last?.to === port - 1 && last.verdict === decided.verdict && last.cookie === decided.cookie;
        if (goes) made.push({ ...(made.pop() ?? last), to: port });
        else made.push({ protocol: PROTOCOLS[at] ?? 0, from: port, to: port, ...decided });
      }
      return made;
    }),
  );

/** Few kinds of rows, so that classes are alike. */
const direction: fc.Arbitrary<CompiledDirection> = fc.array(rows, { minLength: 1, maxLength: 3 }).chain((kinds) => {
  const kind = fc.constantFrom(...kinds);
  const classes = fc
    .array(fc.option(fc.nat(2), { nil: undefined }), { minLength: IDENTITIES.length, maxLength: IDENTITIES.length })
    .chain((places) =>
      fc.tuple(kind, kind, kind).map((of) =>
        of.flatMap((made, place) => {
          const members = IDENTITIES.filter((_, at) => places[at] === place);
          return members.length === 0 ? [] : [{ members, rows: made }];
        }),
      ),
    );
  return fc.record({
    enforced: fc.boolean(),
    scope: fc.record({ unknown: kind, pod: kind, world: kind }),
    classes,
  });
});

/** Whether the direction lets a packet of the peer through. */
function passes(
  { enforced, scope, classes }: CompiledDirection,
  peer: number,
  protocol: number,
  port: number,
): boolean {
  if (!enforced) return true;
  const scopes = [scope.unknown, scope.pod, scope.world];
  const own = classes.find(({ members }) => members.includes(peer))?.rows ?? scopes[classOf(new Map(), peer)] ?? [];
  return own.find((row) => row.protocol === protocol && row.from <= port && port <= row.to)?.verdict === 'allow';
}

it('two identities are distinguished where some packet of theirs is decided otherwise, and nowhere else', () => {
  const seen = { alike: 0, other: 0 };
  fc.assert(
    fc.property(direction, direction, (ingress, egress) => {
      const compiled: Readonly<Record<Direction, CompiledDirection>> = { ingress, egress };
      const steps = assignNumbers(NO_NUMBERS, compiled, 0);
      let step = steps.next();
      while (!step.done) step = steps.next();
      const slot: SlotRow = { slot: 1, shape: 's', compiled, classes: step.value.classes, epoch: 0 };
      const distinguishes = distinguisher(slot);
      for (const a of IDENTITIES)
        for (const b of IDENTITIES) {
          const otherwise = DIRECTIONS.some((each) =>
            PROTOCOLS.some((protocol) =>
              Array.from({ length: PORTS + 1 }, (_, port) => port).some(
                (port) => passes(compiled[each], a, protocol, port) !== passes(compiled[each], b, protocol, port),
              ),
            ),
          );
          expect(distinguishes(a, b)).toBe(otherwise);
          const numbered = DIRECTIONS.some(
            (each) => compiled[each].enforced && classOf(slot.classes[each], a) !== classOf(slot.classes[each], b),
          );
          if (numbered) seen[otherwise ? 'other' : 'alike'] += 1;
        }
    }),
    { numRuns: 200 },
  );
  // Classes of different numbers, both ways.
  expect(seen.alike).toBeGreaterThan(100);
  expect(seen.other).toBeGreaterThan(100);
});

import { expect, it } from '@jest/globals';
import { isLocalCidr, RESERVED_ID } from '@weir/identity';
import type { ClassRows, CompiledDirection, CompiledPolicy, CompiledRow, Pieces } from '@weir/policy';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { assignNumbers, classOf, distinguisher, NO_NUMBERS } from './classes.ts';
import { both, DIRECTIONS } from './rows.ts';
import type { Numbered } from './slot-rows.ts';

const PROTOCOLS = [0, 1, 6, 17] as const;
const PORTS = 4;
/** Two CIDRs, the second within the first. */
const [WIDE, NARROW] = [0x01000001, 0x01000002];
/** Unknown, pods, the world, and reserved ones. */
const IDENTITIES = [0, 1, 2, 256, 257, 258, 259, WIDE, NARROW, 0x03000001];

function around(identity: number): number {
  return identity === NARROW ? WIDE : RESERVED_ID.world;
}

/** The identity, and those that its addresses are judged as where no class names it. */
function chain(identity: number): readonly number[] {
  return isLocalCidr(identity) ? [identity, ...chain(around(identity))] : [identity];
}

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
    addresses: fc.constant([]),
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
  const named = chain(peer).flatMap((one) => classes.filter(({ members }) => members.includes(one)));
  const own = named[0]?.rows ?? scopes[classOf(new Map(), peer, around)] ?? [];
  return own.find((row) => row.protocol === protocol && row.from <= port && port <= row.to)?.verdict === 'allow';
}

function run<T>(pieces: Pieces<T>): T {
  for (;;) {
    const piece = pieces.next();
    if (piece.done) return piece.value;
  }
}

function slotOf(compiled: CompiledPolicy): Numbered {
  const { numbers, classes } = run(assignNumbers(NO_NUMBERS, compiled, 0));
  return { row: { slot: 1, shape: 's', compiled, classes, epoch: 0 }, numbers };
}

it('two identities are distinguished where some packet of theirs is decided otherwise, and nowhere else', () => {
  const seen = { alike: 0, other: 0 };
  fc.assert(
    fc.property(direction, direction, (ingress, egress) => {
      const compiled: CompiledPolicy = { ingress, egress };
      const slot = slotOf(compiled).row;
      const distinguishes = distinguisher(slot, around);
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
            (each) =>
              compiled[each].enforced &&
              classOf(slot.classes[each], a, around) !== classOf(slot.classes[each], b, around),
          );
          if (numbered) seen[otherwise ? 'other' : 'alike'] += 1;
        }
    }),
    { numRuns: runs(200) },
  );
  // Classes of different numbers, both ways.
  expect(seen.alike).toBeGreaterThan(runs(100));
  expect(seen.other).toBeGreaterThan(runs(100));
});

it('a number at rest is given to the rows that it had at once, and to others later', () => {
  const one = (port: number): CompiledPolicy => {
    const rows: ClassRows = [{ protocol: 6, from: port, to: port, verdict: 'allow', cookie: 1 }];
    return both(() => ({
      enforced: true,
      scope: { unknown: [], pod: [], world: [] },
      classes: [{ members: [300], rows }],
      addresses: [],
    }));
  };
  let numbers = NO_NUMBERS;
  const given: (number | undefined)[] = [];
  for (const [now, port] of [
    [0, 80],
    [1, 81],
    [2, 80],
    [3, 82],
    [10_000, 83],
  ] as const) {
    const next = run(assignNumbers(numbers, one(port), now));
    numbers = next.numbers;
    given.push(next.classes.ingress.get(300));
  }
  expect(given).toEqual([16, 17, 16, 18, 16]);
});

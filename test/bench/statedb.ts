/** Suite `statedb`: the StateDB beside cilium/statedb, line by line, and what it costs at a size the peer's benchmarks do not reach. */
import { NODE_FLAGS } from '../../scripts/images/catalog.ts';
import { beside, type Case } from './statedb-beside.ts';
import { own, peer } from './statedb-programs.ts';
import type { Suite } from './suite.ts';

const single = (name: string, title: string, target?: number): Case => ({
  name,
  times: 3,
  lines: [{ figure: name, title, ...(target === undefined ? {} : { target }) }],
});

const CASES: readonly Case[] = [
  single('write-1', 'write of 1 row', 1714),
  single('write-100', 'write of 100 rows', 809),
  single('write-1000', 'write of 1,000 rows', 851),
  single('write-100-tags', 'write of 100 rows with a secondary index', 1959),
  single('write-100-lpm', 'write of 100 rows with longest-prefix indexes', 3053),
  single('read', 'read transaction', 0.6),
  single('lookup', 'random lookup in 1,000 rows', 46),
  single('iterate', 'iteration over 100,000 rows, by an iterator', 11),
  single('visit', 'iteration over 100,000 rows, by a visitor', 11),
  single('changes', 'insert, observe, delete, observe', 1290),
  single('lpm-get', 'longest-prefix get in 10,000 rows', 464),
  {
    name: 'propagation',
    times: 3,
    lines: [
      { figure: 'propagation-p50', title: 'propagation through two tables, p50', target: 12 },
      { figure: 'propagation-p99', title: 'propagation through two tables, p99', target: 157 },
    ],
  },
  {
    name: 'load',
    times: 1,
    lines: [
      { figure: 'load', title: 'load of 1,000,000 rows' },
      { figure: 'load-live', title: '1,000,000 rows, live', goal: 354 },
    ],
  },
  { ...single('load-shuffled', 'load of 1,000,000 rows in random order'), times: 1 },
];

/** Noise that two runs of the same work differ by. */
const NOISE = 1.2;

/** Beside much else; the peer is the same without it. */
const SCALES: readonly Case[] = [
  {
    name: 'streams',
    times: 3,
    lines: [{ figure: 'streams', title: 'write of 1 row beside 100 idle streams (peer: none)', slack: NOISE }],
  },
  {
    name: 'tables',
    times: 3,
    lines: [
      { figure: 'tables-write', title: 'write of 1 row beside 999 other tables (peer: none)', slack: NOISE },
      { figure: 'tables-read', title: 'snapshot and get beside 999 other tables (peer: none)', slack: NOISE },
    ],
  },
  {
    name: 'watches',
    times: 3,
    lines: [
      { figure: 'watches', title: 'write of 1 row beside 10,000 watches on other keys (peer: none)', slack: NOISE },
      { figure: 'watches-spurious', title: 'of 10,000 watches, fired by writes to their neighbours', goal: 1 },
    ],
  },
  {
    name: 'snapshots',
    times: 3,
    lines: [{ figure: 'snapshots', title: 'write of 1 row beside 1,000 open snapshots (peer: none)', slack: NOISE }],
  },
];

/** A young generation whose collections are short, and helpers for those of the old one: as the package's README advises. */
const LARGE = ['--max-semi-space-size=2'];

/** Milliseconds. */
const LONGEST_PAUSE = 10;

function pauses(how: string): Case {
  return {
    name: 'pauses',
    times: 3,
    lines: ['load', 'churn', 'iterate'].map((phase) => ({
      figure: `pause-${phase}`,
      title: `longest pause of the collector, 1,000,000 rows, ${phase}, ${how}`,
      goal: LONGEST_PAUSE,
    })),
  };
}

export const statedb: Suite = async function* () {
  const ours = own('statedb-own.ts');
  yield* beside(CASES, ours, await peer());
  yield* beside(
    SCALES,
    (name) => ours(`${name}-many`),
    (name) => ours(`${name}-none`),
  );
  yield* beside([pauses("node's defaults")], ours, undefined);
  yield* beside([pauses("the images' flags")], own('statedb-own.ts', NODE_FLAGS), undefined);
  yield* beside([pauses('flags for large states')], own('statedb-own.ts', LARGE), undefined);
};

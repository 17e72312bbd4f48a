/**
 * `node --expose-gc statedb-own.ts CASE`: measures one case of our StateDB in a process of its own. Names and workloads of the first
 * group are those of peers/statedb/main.go.
 */
import { type Cases, printCase } from './statedb-measure.ts';
import { pauses } from './statedb-pauses.ts';
import { followChanges, getPrefixes, iterate, lookUp, openRead, propagate, visit } from './statedb-reads.ts';
import { idleStreams, keyWatches, openSnapshots, otherTables } from './statedb-scale.ts';
import { loadAscending, loadShuffled, writeMany, writeOne, writePrefixes, writeTagged } from './statedb-writes.ts';

const CASES: Cases = {
  'write-1': writeOne,
  'write-100': () => writeMany('write-100', 100),
  'write-1000': () => writeMany('write-1000', 1000),
  'write-100-tags': writeTagged,
  'write-100-lpm': writePrefixes,
  read: openRead,
  lookup: lookUp,
  iterate,
  visit,
  changes: followChanges,
  'lpm-get': getPrefixes,
  propagation: propagate,
  load: loadAscending,
  'load-shuffled': loadShuffled,

  pauses,
  'streams-none': () => idleStreams(0),
  'streams-many': () => idleStreams(100),
  'tables-none': () => otherTables(0),
  'tables-many': () => otherTables(999),
  'watches-none': () => keyWatches(0),
  'watches-many': () => keyWatches(10_000),
  'snapshots-none': () => openSnapshots(0),
  'snapshots-many': () => openSnapshots(1000),
};

await printCase(CASES);

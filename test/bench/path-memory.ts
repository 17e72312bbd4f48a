/** What the datapath weighs: memory of a flow and of a prefix (its element, without what the allocator adds), and how much of the verifier's limit (1,000,000 instructions) each program takes. proc(5), fdinfo. */
import { readFileSync } from 'node:fs';
import { ipcacheKey, ipcacheValue, PROGRAMS } from '@weir/bpf';
import { TestDatapath } from '@weir/bpf/testing/datapath.ts';
import type { Suite } from './suite.ts';

const FLOWS = 262_144;
/** As many as the map of a TestDatapath holds. */
const PREFIXES = 4096;
const VERIFIER_LIMIT = 1_000_000;

function infoOf(fd: number, field: string): number {
  const value = new RegExp(`^${field}:\\s+(\\d+)$`, 'm').exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1];
  if (value === undefined) throw new Error(`fdinfo has no ${field}`);
  return Number(value);
}

export const memory: Suite = async function* () {
  using datapath = new TestDatapath({ ctEntries: FLOWS });
  for (const [family, name] of [
    ['IPv4', 'ct4'],
    ['IPv6', 'ct6'],
  ] as const) {
    const value = infoOf(datapath.map(name).fd, 'memlock') / FLOWS;
    yield { case: `memory of a flow, ${family}`, value, unit: 'B', goal: family === 'IPv4' ? 120 : 144 };
  }
  const ipcache = datapath.map('ipcache');
  const empty = infoOf(ipcache.fd, 'memlock');
  for (let at = 0; at < PREFIXES; at += 1) {
    const address = Uint8Array.of(10, at >> 8, at & 255, 1);
    ipcache.update(ipcacheKey.encode({ address, bits: 32 }), ipcacheValue.encode({ identity: 1000 + at, bits: 32 }));
  }
  yield { case: 'memory of a prefix', value: (infoOf(ipcache.fd, 'memlock') - empty) / PREFIXES, unit: 'B' };
  for (const name of Object.values(PROGRAMS)) {
    const value = infoOf(datapath.object.program(name).fd, 'verified_insns');
    yield { case: `verified instructions, ${name}`, value, unit: 'instructions', goal: VERIFIER_LIMIT };
  }
};

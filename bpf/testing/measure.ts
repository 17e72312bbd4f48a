/**
 * What a packet costs, by BPF_PROG_TEST_RUN (64-byte TCP): the best mean of several rounds, which is the one the least
 * disturbed. Compare ratios to `floor` (a program that passes everything), not nanoseconds of different machines. Fails where a packet comes to
 * something else than its row says.
 *
 *   node bpf/testing/measure.ts
 */
import { skbContext } from 'libbpf-ts';
import { type Direction, ENDPOINT_FLAGS } from '../constants.ts';
import { PROGRAMS } from '../maps.ts';
import { TEST_IFINDEX, TestDatapath } from './datapath.ts';
import { ethernet, ipv4, TCP_FLAGS, tcp } from './packets.ts';

export interface Costs {
  readonly peers: number;
  readonly floor: number;
  readonly established: number;
  readonly reply: number;
  readonly deniedPeer: number;
  readonly deniedPort: number;
  /** New flow allowed while the conntrack table is full: decided and not stored. */
  readonly newUntracked: number;
  /** New flow to an address in so many CIDRs, nested, of which the policy names none. */
  readonly unnamed1: number;
  readonly unnamed8: number;
  readonly unnamed32: number;
}

const ROUNDS = 7;
const RUNS = 300_000;
const POD = '10.0.0.1';
const PEER = '10.0.0.2';
const STRANGER = '10.0.0.3';
/** Each in so many CIDRs of others. */
const UNNAMED = { 1: '192.0.2.1', 8: '198.51.100.1', 32: '96.0.113.1' } as const;

function frame(src: string, dst: string, sport: number, dport: number, flags: number): Uint8Array {
  return ethernet(ipv4({ src, dst, protocol: 6, payload: tcp({ sport, dport, flags, payload: new Uint8Array(10) }) }));
}

function best(run: () => number): number {
  return Math.min(...Array.from({ length: ROUNDS }, run));
}

/** Of packets that all come to `outcome`, as `TestDatapath.judge` names it. */
function cost(path: TestDatapath, direction: Direction, data: Uint8Array, outcome: string): number {
  const run = (): number => best(() => path.runMany(direction, data, RUNS).ns);
  return path.expecting(direction, outcome, ROUNDS * RUNS, run);
}

function prepared(peers: number, ctEntries: number): TestDatapath {
  const path = new TestDatapath({ ctEntries });
  path.endpoint({ flags: ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced });
  path.identity(PEER, 0x0100_0000);
  path.identity(STRANGER, 2000);
  for (const [count, address] of Object.entries(UNNAMED))
    for (let at = 0; at < Number(count); at += 1)
      path.identity(address, 0x0180_0000 + 64 * Number(count) + at, 32 - at);
  const classes = Array.from({ length: peers }, (_, at) => ({
    identity: 0x0100_0000 + at,
    direction: 'egress' as const,
    class: 16,
  }));
  path.slot(0, classes, [{ class: 16, direction: 'egress', protocol: 'tcp', port: 0, portBits: 8, verdict: 'allow' }]);
  return path;
}

/** Costs in nanoseconds with a policy that names `peers` identities. */
export function measure(peers: number): Costs {
  using path = prepared(peers, 262_144);
  using full = prepared(peers, 1);
  const context = skbContext({ ifindex: TEST_IFINDEX });
  const pass = path.object.program(PROGRAMS.pass);
  const opening = frame(POD, PEER, 1000, 80, TCP_FLAGS.syn);
  path.run('egress', opening);
  for (let port = 1; port < 64; port++) full.run('egress', frame(POD, PEER, 1000, port, TCP_FLAGS.syn));
  const egress = (data: Uint8Array, outcome: string): number => cost(path, 'egress', data, outcome);
  const unnamed = (address: string): number => egress(frame(POD, address, 1000, 80, TCP_FLAGS.syn), 'policy');
  const costs = {
    peers,
    floor: best(() => pass.testRun({ data: opening, repeat: RUNS, context }).durationNs),
    established: egress(frame(POD, PEER, 1000, 80, TCP_FLAGS.ack), 'forwarded'),
    reply: cost(path, 'ingress', frame(PEER, POD, 80, 1000, TCP_FLAGS.ack), 'forwarded'),
    deniedPeer: egress(frame(POD, STRANGER, 1000, 80, TCP_FLAGS.syn), 'policy'),
    deniedPort: egress(frame(POD, PEER, 1000, 443, TCP_FLAGS.syn), 'policy'),
    newUntracked: cost(full, 'egress', frame(POD, PEER, 1000, 200, TCP_FLAGS.syn), 'ct-full+forwarded'),
    unnamed1: unnamed(UNNAMED[1]),
    unnamed8: unnamed(UNNAMED[8]),
    unnamed32: unnamed(UNNAMED[32]),
  };
  const [flow, found] = [path.flow('egress', 6, POD, 1000, PEER, 80).get(), path.flows()];
  if (found !== 1 || flow?.packets !== 1n + BigInt(2 * ROUNDS * RUNS))
    throw new Error(`expected one flow with all packets of both sides, and found ${found}, this with ${flow?.packets}`);
  return costs;
}

if (import.meta.main) console.table([1, 1000, 10_000].map(measure));

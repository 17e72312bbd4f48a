import { randomInt } from 'node:crypto';
import { CT_KEYS, DIRECTION } from '@weir/bpf';
import { type Direction, PROTOCOL_NUMBERS } from '@weir/policy';
import { type BpfMap, type BpfProgram, skbContext } from 'libbpf-ts';
import { frameOf, type ProbeFlow } from './frame.ts';

const TC_ACT_SHOT = 2;
/** No interface has this index: what came in by it came from outside of the node's own sockets. */
const OUTSIDE = 0x7fff_fff0;
/** The node itself sends it. */
const OWN = 0;
/** Ports to try until one is of no known flow. */
const TRIES = 16;

/** The kernel's programs and maps. */
export interface ProbedKernel {
  /** That judges at pods' interfaces. */
  readonly program: (direction: Direction) => Pick<BpfProgram, 'testRun'>;
  readonly map: (name: keyof typeof CT_KEYS | 'names') => Pick<BpfMap, 'lookup' | 'delete'>;
  /** Runs in the network namespace whose interfaces the programs judge. */
  readonly inNode: <T>(body: () => T) => T;
}

export interface Probe {
  readonly endpoint: { readonly id: number; readonly ifindex: number };
  readonly direction: Direction;
  readonly flow: Omit<ProbeFlow, 'sourcePort'>;
  /** The node itself sends it. */
  readonly fromNode: boolean;
}

/**
 * What the program of an endpoint's interface does with one packet of a new flow, by a test run: nothing is sent or delivered. No flow is left in the
 * connection tables. The packet is counted in the metrics, and a drop is an event, as of any other.
 * @throws BpfError
 */
export function askKernel(kernel: ProbedKernel, probe: Probe): 'allowed' | 'denied' {
  const { endpoint, direction, flow, fromNode } = probe;
  const name = flow.source.length === 4 ? 'ct4' : 'ct6';
  const map = kernel.map(name);
  const keyOf = (sourcePort: number): Uint8Array =>
    CT_KEYS[name].encode({
      src: flow.source,
      dst: flow.destination,
      sport: sourcePort,
      dport: flow.port,
      endpoint: endpoint.id,
      protocol: PROTOCOL_NUMBERS[flow.protocol],
      direction: DIRECTION[direction],
    });
  let sourcePort = randomInt(1024, 65_536);
  for (let tries = 0; tries < TRIES && map.lookup(keyOf(sourcePort)) !== undefined; tries += 1)
    sourcePort = randomInt(1024, 65_536);
  const ingressIfindex = direction === 'egress' || fromNode ? OWN : OUTSIDE;
  const { returnValue } = kernel.inNode(() =>
    kernel.program(direction).testRun({
      data: frameOf({ ...flow, sourcePort }),
      context: skbContext({ ifindex: endpoint.ifindex, ingressIfindex }),
    }),
  );
  // What is not TCP begins a flow by its first packet; the share that counts it is corrected by the next collection.
  map.delete(keyOf(sourcePort));
  return returnValue === TC_ACT_SHOT ? 'denied' : 'allowed';
}

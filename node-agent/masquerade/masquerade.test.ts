/** What pods send out of the cluster, on the real kernel: a node, its pods, and a machine outside that knows only the node. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Peer } from '@weir/bpf/testing';
import { NODE, OUTSIDE, World } from './testing/world.ts';

let world: World;
let a: Peer;
let b: Peer;
let node: Peer;

beforeAll(async () => {
  world = new World();
  await world.start();
  [a, b] = world.pods.map((pod) => world.talker(world.namespaceOf(pod))) as [Peer, Peer];
  node = world.talker(world.lab.node);
});
afterAll(async () => {
  await world.close();
});

it('UDP, TCP and pings of pods leave with the address of the node, and answers come back', async () => {
  expect(await a.ask(`udp ${OUTSIDE} 10 40001`)).toBe(`${NODE} 40001`);
  expect(await a.ask(`tcp ${OUTSIDE} 40001`)).toBe(`${NODE} 40001`);
  expect(await a.ask(`ping ${OUTSIDE} 77`)).toBe(`echo from ${OUTSIDE}`);
});

it('of two pods with one source port each has a port of its own', async () => {
  expect(await a.ask(`udp ${OUTSIDE} 10 40002`)).toBe(`${NODE} 40002`);
  const other = await b.ask(`udp ${OUTSIDE} 10 40002`);
  expect(other).toMatch(new RegExp(`^${NODE.replaceAll('.', '\\.')} (3[3-9]|[456])`));
  expect(other).not.toBe(`${NODE} 40002`);
  expect(await b.ask(`udp ${OUTSIDE} 10 40002`)).toBe(other);
  expect(await a.ask(`udp ${OUTSIDE} 10 40002`)).toBe(`${NODE} 40002`);
});

it('what the node itself sends keeps its port, and one that a socket of the node has is no pod’s', async () => {
  expect(await node.ask('listen 40003')).toBe('listens');
  expect(await a.ask(`udp ${OUTSIDE} 10 40003`)).not.toBe(`${NODE} 40003`);
  expect(await a.ask(`udp ${OUTSIDE} 10 40004`)).toBe(`${NODE} 40004`);
  expect(await node.ask(`udp ${OUTSIDE} 10 40004`)).toBe(`${NODE} 40004`);
  expect(await a.ask(`udp ${OUTSIDE} 10 40004`)).not.toBe(`${NODE} 40004`);
});

import { describe, expect, it } from '@jest/globals';
import { namespaceRow, nodeRow, podRow } from '../kubernetes/rows.ts';
import { namespace, node, pod } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';
import { Desired, drain, Inputs, newModel } from './testing/trace.ts';

type PodMore = Parameters<typeof pod>[2] & object;

type NodeMore = Parameters<typeof node>[2] & object;

/** A model, and for each address what the slices in the API have said of it, edit by edit. */
class Cluster {
  readonly refused: string[] = [];
  readonly overlaps: string[] = [];
  readonly leftOut: string[] = [];
  readonly model = new TestModel({
    cluster: 'default',
    identityGraceMs: 0,
    now: () => 1_700_000_000_000,
    onAddressRefused: ({ address, pod, reason, others }) =>
      this.refused.push([pod, address, reason, ...others].join(' ')),
    onNodeAddressesLeftOut: (name, reported) => this.leftOut.push(`${name} ${reported}`),
    onPodCidrOverlap: ({ node: name, oldest }) => this.overlaps.push(`${name} over ${oldest}`),
  });
  readonly #desired = new Desired();
  readonly #inputs = new Inputs();

  constructor(nodes: Readonly<Record<string, readonly string[] | undefined>> = { n1: undefined, n2: undefined }) {
    for (const name of ['a', 'b']) this.namespace(name);
    for (const [name, podCIDRs] of Object.entries(nodes)) this.node(name, podCIDRs === undefined ? {} : { podCIDRs });
    this.model.adoptionDone();
  }

  namespace(name: string, labels?: Record<string, string>): void {
    const row = namespaceRow(namespace(name, labels));
    this.#inputs.namespaces.set(name, row);
    this.model.setNamespace(row);
  }

  node(name: string, more: NodeMore): void {
    const row = nodeRow(node(name, 'True', { created: '2026-01-01T00:00:00Z', ...more }));
    this.#inputs.nodes.set(name, row);
    this.model.setNode(row);
  }

  pod(where: string, app: string, more: PodMore): void {
    const row = podRow(pod(where, { app }, { node: 'n1', ...more }));
    this.#inputs.pods.set(row.key, row);
    this.model.setPod(row);
  }

  /** address -> `pod app` after the next round; an address that two slices name has two. */
  get addresses(): Record<string, string> {
    this.#desired.apply(this.model.flush());
    return said(this.#desired);
  }

  /** The same of an operator that starts now. */
  get addressesAfterRestart(): Record<string, string> {
    const [model, desired] = [newModel(0), new Desired()];
    model.adopt(this.#desired.adopted());
    this.#inputs.load(model);
    drain(model, desired);
    return said(desired);
  }
}

function said({ slices, identities }: Desired): Record<string, string> {
  const all: Record<string, string> = {};
  for (const { endpoints } of slices.values())
    for (const { name, identity, networking } of endpoints) {
      const labels = identities.get(String(identity))?.labels ?? {};
      const who = `${name} ${labels['k8s:app']} ${teamOf(labels)}`.trim();
      for (const address of networking.addressing.flatMap(({ ipv4 = [], ipv6 = [] }) => [ipv4, ipv6].flat()))
        all[address] = all[address] === undefined ? who : `${all[address]} AND ${who}`;
    }
  return all;
}

function teamOf(labels: Readonly<Record<string, string>>): string {
  return labels['k8s:io.cilium.k8s.namespace.labels.team'] ?? '';
}

describe('identities as cluster life asks for them', () => {
  it('a Deployment that is rolled and scaled: each pod has the identity of its labels from its first address on', () => {
    const cluster = new Cluster();
    for (let n = 0; n < 3; n += 1) cluster.pod(`a/web-old-${n}`, 'v1', { ip: `10.0.0.${n}` });
    expect(Object.values(cluster.addresses)).toEqual(['web-old-0 v1', 'web-old-1 v1', 'web-old-2 v1']);
    for (let n = 0; n < 3; n += 1) {
      cluster.pod(`a/web-new-${n}`, 'v2', {});
      cluster.pod(`a/web-new-${n}`, 'v2', { ip: `10.0.1.${n}` });
      expect(cluster.addresses[`10.0.1.${n}`]).toBe(`web-new-${n} v2`);
      cluster.pod(`a/web-old-${n}`, 'v1', { ip: `10.0.0.${n}`, terminating: true });
      // Until it is gone it may still talk.
      expect(cluster.addresses[`10.0.0.${n}`]).toBe(`web-old-${n} v1`);
      cluster.model.deletePod(`a/web-old-${n}`);
      expect(cluster.addresses).not.toHaveProperty([`10.0.0.${n}`]);
    }
    cluster.model.deletePod('a/web-new-2');
    expect(Object.keys(cluster.addresses)).toEqual(['10.0.1.0', '10.0.1.1']);
  });

  it('a relabelled pod, or namespace, moves from one identity to the next in one edit', () => {
    const cluster = new Cluster();
    cluster.pod('a/p', 'v1', { ip: '10.0.0.1' });
    cluster.pod('a/q', 'v1', { ip: '10.0.0.2' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'p v1', '10.0.0.2': 'q v1' });
    cluster.pod('a/p', 'v2', { ip: '10.0.0.1' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'p v2', '10.0.0.2': 'q v1' });
    cluster.namespace('a', { team: 'red' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'p v2 red', '10.0.0.2': 'q v1 red' });
    // The one before goes when it is collected, and nothing points to it.
    cluster.model.collect();
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'p v2 red', '10.0.0.2': 'q v1 red' });
  });

  it('a pod of the same name with another address (StatefulSet): the old address goes in the edit that brings the new', () => {
    const cluster = new Cluster();
    cluster.pod('a/db-0', 'db', { ip: '10.0.0.1' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'db-0 db' });
    cluster.pod('a/db-0', 'db', { ip: '10.0.0.7', node: 'n2' });
    expect(cluster.addresses).toEqual({ '10.0.0.7': 'db-0 db' });
    // Seen one by one: deleted, created, scheduled, with an address.
    cluster.model.deletePod('a/db-0');
    expect(cluster.addresses).toEqual({});
    cluster.pod('a/db-0', 'db', {});
    expect(cluster.addresses).toEqual({});
    cluster.pod('a/db-0', 'db', { ip: '10.0.0.8' });
    expect(cluster.addresses).toEqual({ '10.0.0.8': 'db-0 db' });
  });

  it('a finished Job gives its address up at once, and whoever takes it over has it alone', () => {
    const cluster = new Cluster();
    cluster.pod('a/job', 'job', { ip: '10.0.0.1' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'job job' });
    cluster.pod('a/job', 'job', { ip: '10.0.0.1', phase: 'Succeeded' });
    cluster.pod('b/next', 'next', { ip: '10.0.0.1' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'next next' });
    expect(cluster.refused).toEqual([]);
  });

  it('a pod stuck in its deletion keeps its address until another pod shows it', () => {
    const cluster = new Cluster();
    cluster.pod('a/stuck', 'old', { ip: '10.0.0.1', terminating: true });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'stuck old' });
    cluster.pod('b/next', 'next', { ip: '10.0.0.1' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'next next' });
    // Whatever happens to the stuck one, it does not take the address back.
    cluster.pod('a/stuck', 'older', { ip: '10.0.0.1', terminating: true });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'next next' });
    cluster.model.deletePod('a/stuck');
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'next next' });
    expect(cluster.refused).toEqual([]);
  });

  it('two pods that claim an address on equal terms: it is nobody’s, that is said, and the one that is left gets it', () => {
    const cluster = new Cluster();
    cluster.pod('a/p', 'p', { ip: '10.0.0.1' });
    cluster.pod('b/q', 'q', { ip: '10.0.0.1' });
    expect(cluster.addresses).toEqual({});
    expect(cluster.refused).toEqual(['a/p 10.0.0.1 contested b/q', 'b/q 10.0.0.1 contested a/p']);
    cluster.pod('a/p', 'p', { ip: '10.0.0.2' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'q q', '10.0.0.2': 'p p' });
  });

  it('what a tenant writes into the status of its pods takes nothing from others, also over a restart', () => {
    const cluster = new Cluster({ n1: ['10.0.1.0/24'], n2: ['10.0.2.0/24'] });
    cluster.pod('a/victim', 'victim', { ip: '10.0.1.5' });
    const expected = { '10.0.1.5': 'victim victim' };
    expect(cluster.addresses).toEqual(expected);
    for (const ip of ['10.0.1.5', '10.0.2.7', '203.0.113.9', '010.0.1.9', 'fd00::1']) {
      cluster.pod('b/evil', 'evil', { ip });
      expect(cluster.addresses).toEqual(expected);
      expect(cluster.addressesAfterRestart).toEqual(expected);
    }
    expect(cluster.refused).toEqual([
      'b/evil 10.0.1.5 taken a/victim',
      'b/evil 10.0.2.7 elsewhere',
      'b/evil 203.0.113.9 elsewhere',
      'b/evil fd00::1 elsewhere',
    ]);
    // Its own is its own.
    cluster.pod('b/evil', 'evil', { ip: '10.0.1.6' });
    expect(cluster.addresses).toEqual({ ...expected, '10.0.1.6': 'evil evil' });
  });

  it('an address counts when the node of its pod is known, and for as long as it is in its pod CIDRs', () => {
    const cluster = new Cluster({});
    cluster.pod('a/p', 'p', { ip: '10.0.1.5' });
    expect(cluster.addresses).toEqual({});
    cluster.node('n1', { podCIDRs: ['10.0.1.0/24'] });
    expect(cluster.addresses).toEqual({ '10.0.1.5': 'p p' });
    cluster.node('n1', { podCIDRs: ['10.0.2.0/24'] });
    expect(cluster.addresses).toEqual({});
    cluster.node('n1', {});
    expect(cluster.addresses).toEqual({ '10.0.1.5': 'p p' });
    cluster.model.deleteNode('n1');
    expect(cluster.addresses).toEqual({});
    expect(cluster.refused).toEqual(['a/p 10.0.1.5 elsewhere']);
  });

  it('a pod of a node without pod CIDRs has no address of another node, nor of the pods of one', () => {
    const cluster = new Cluster({ n1: undefined });
    cluster.pod('a/p', 'p', { ip: '10.0.2.5' });
    expect(cluster.addresses).toEqual({ '10.0.2.5': 'p p' });
    cluster.node('n2', { podCIDRs: ['10.0.2.0/24'] });
    expect(cluster.addresses).toEqual({});
    cluster.node('n2', {});
    expect(cluster.addresses).toEqual({ '10.0.2.5': 'p p' });
    cluster.node('n2', { addresses: ['10.0.2.5'] });
    expect(cluster.addresses).toEqual({});
  });

  it('what a node says of itself takes no pod address from others, nor does one that comes with pod CIDRs over theirs', () => {
    const cluster = new Cluster({ n1: ['10.0.1.0/24'], n2: ['10.0.2.0/24'] });
    cluster.pod('a/victim', 'victim', { ip: '10.0.1.5' });
    const expected = { '10.0.1.5': 'victim victim' };
    expect(cluster.addresses).toEqual(expected);
    cluster.node('n2', { podCIDRs: ['10.0.2.0/24'], addresses: ['10.0.1.5'] });
    cluster.node('taken', { podCIDRs: ['10.0.1.4/30'], created: '2026-01-02T00:00:00Z' });
    cluster.node('taken', { podCIDRs: ['10.0.1.4/30'], created: '2026-01-02T00:00:00Z', addresses: ['192.0.2.9'] });
    cluster.pod('b/evil', 'evil', { ip: '10.0.1.5', node: 'taken' });
    cluster.pod('b/worse', 'evil', { ip: '10.0.1.6', node: 'taken' });
    expect(cluster.addresses).toEqual(expected);
    expect(cluster.refused).toEqual(['b/evil 10.0.1.5 elsewhere a/victim', 'b/worse 10.0.1.6 elsewhere']);
    expect(cluster.overlaps).toEqual(['taken over n1']);
    const atStart = new Cluster({ taken: ['10.0.1.4/30'], n1: ['10.0.1.0/24'] });
    expect(atStart.addresses).toEqual({});
    expect(atStart.overlaps).toEqual(['taken over n1']);
  });

  it('a pod on the network of its host has no identity and no place in a slice', () => {
    const cluster = new Cluster();
    cluster.pod('a/host', 'host', { ip: '192.0.2.1', hostNetwork: true });
    cluster.pod('b/host', 'host', { ip: '192.0.2.1', hostNetwork: true });
    expect(cluster.addresses).toEqual({});
    expect(cluster.refused).toEqual([]);
    expect(cluster.model.flush().identities).toEqual([]);
  });
});

it('of a node that reports very many addresses the first 64 count, which is told once; a change of them concerns their pods alone', () => {
  const cluster = new Cluster({ n1: undefined });
  const report = (network: number, count: number): void =>
    cluster.node('n2', { addresses: Array.from({ length: count }, (_, n) => `10.${network}.${n >> 8}.${n & 255}`) });
  cluster.pod('a/p', 'p', { ip: '10.1.0.5' });
  cluster.pod('a/q', 'q', { ip: '10.1.0.200' });
  expect(Object.keys(cluster.addresses)).toEqual(['10.1.0.5', '10.1.0.200']);
  report(1, 20_000);
  expect(Object.keys(cluster.addresses)).toEqual(['10.1.0.200']);
  report(2, 20_000);
  expect(Object.keys(cluster.addresses).sort()).toEqual(['10.1.0.200', '10.1.0.5']);
  report(2, 64);
  report(2, 65);
  cluster.model.flush();
  expect(cluster.leftOut).toEqual(['n2 20000', 'n2 65']);
});

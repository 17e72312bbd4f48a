import { describe, expect, it } from '@jest/globals';
import { namespaceRow, nodeRow, podRow } from '../kubernetes/rows.ts';
import { namespace, node, pod } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';

type PodMore = Parameters<typeof pod>[2] & object;

/** A model, and for each address what the slices in the API have said of it, edit by edit. */
class Cluster {
  readonly clashes: string[] = [];
  readonly model = new TestModel({
    cluster: 'default',
    identityGraceMs: 0,
    now: () => 1_700_000_000_000,
    onAddressClash: (address, pods) => this.clashes.push(`${address} ${pods.join(' ')}`),
  });
  readonly #slices = new Map<string, readonly (readonly [string, string])[]>();
  readonly #labels = new Map<number, string>();

  constructor() {
    for (const name of ['a', 'b']) this.model.setNamespace(namespaceRow(namespace(name)));
    for (const name of ['n1', 'n2']) this.model.setNode(nodeRow(node(name)));
    this.model.adoptionDone();
  }

  pod(where: string, app: string, more: PodMore): void {
    this.model.setPod(podRow(pod(where, { app }, { node: 'n1', ...more })));
  }

  /** address -> `pod app` after the next round; an address that two slices name has two. */
  get addresses(): Record<string, string> {
    const edits = this.model.flush();
    for (const { row } of edits.identities) {
      if (row !== undefined) this.#labels.set(row.id, `${row.labels['k8s:app']} ${teamOf(row.labels)}`.trim());
    }
    for (const { key, row } of edits.slices) {
      this.#slices.set(
        key,
        (row?.endpoints ?? []).map((e) => [
          e.networking.addressing[0]?.ipv4 ?? '',
          `${e.name} ${this.#labels.get(e.identity)}`,
        ]),
      );
    }
    const all: Record<string, string> = {};
    for (const [address, said] of [...this.#slices.values()].flat()) {
      all[address] = all[address] === undefined ? said : `${all[address]} AND ${said}`;
    }
    return all;
  }
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
    cluster.model.setNamespace(namespaceRow(namespace('a', { team: 'red' })));
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
    expect(cluster.clashes).toEqual([]);
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
    expect(cluster.clashes).toEqual([]);
  });

  it('two pods that claim an address on equal terms: it is nobody’s, that is said, and the one that is left gets it', () => {
    const cluster = new Cluster();
    cluster.pod('a/p', 'p', { ip: '10.0.0.1' });
    cluster.pod('b/q', 'q', { ip: '10.0.0.1' });
    expect(cluster.addresses).toEqual({});
    expect(cluster.clashes.at(-1)).toBe('10.0.0.1 a/p b/q');
    cluster.pod('a/p', 'p', { ip: '10.0.0.2' });
    expect(cluster.addresses).toEqual({ '10.0.0.1': 'q q', '10.0.0.2': 'p p' });
  });

  it('a pod on the network of its host has no identity and no place in a slice', () => {
    const cluster = new Cluster();
    cluster.pod('a/host', 'host', { ip: '192.0.2.1', hostNetwork: true });
    cluster.pod('b/host', 'host', { ip: '192.0.2.1', hostNetwork: true });
    expect(cluster.addresses).toEqual({});
    expect(cluster.clashes).toEqual([]);
    expect(cluster.model.flush().identities).toEqual([]);
  });
});

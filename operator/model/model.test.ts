import { describe, expect, it } from '@jest/globals';
import { type LabelMap, matches } from '@weir/labels';
import { parsePrefix, prefixContains } from '@weir/net';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { hashesOf } from '../names.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import type { NodeRow, PolicyRow } from '../types.ts';
import { SLICE_SIZE } from './slices.ts';
import { clock, Desired, drain, Inputs, newModel, step } from './testing/trace.ts';

/** Of pods that all came at once: the one that can have the address, and that nobody else claims on equal terms. */
function ownerOf({ pods, nodes, namespaces }: Inputs, address: string): string | undefined {
  const within = ({ podCidrs }: NodeRow): boolean =>
    podCidrs.some((cidr) => prefixContains(parsePrefix(cidr), parsePrefix(address)));
  const [home] = [...nodes.values()]
    .filter(within)
    .sort((a, b) => (a.created < b.created || (a.created === b.created && a.name < b.name) ? -1 : 1));
  const claims = [...pods.values()].filter((pod) => {
    const node = nodes.get(pod.node ?? '');
    if (node === undefined || pod.hostNetwork || pod.finished || !namespaces.has(pod.namespace)) return false;
    const free = node.podCidrs.length === 0 && home === undefined;
    const counts = free ? ![...nodes.values()].some(({ addresses }) => addresses.includes(address)) : home === node;
    return counts && pod.addresses.includes(address);
  });
  const staying = claims.filter(({ terminating }) => !terminating);
  const [owner, ...others] = staying.length > 0 ? staying : claims;
  return others.length > 0 ? undefined : owner?.key;
}

describe('model', () => {
  it('incremental equals recomputed by a new model that adopts, whatever the trace', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(step, fc.boolean()), { maxLength: 80, size: 'max' }),
        fc.boolean(),
        (trace, rounds) => {
          const inputs = new Inputs();
          const desired = new Desired();
          const model = newModel(0);
          model.adopt(desired.adopted());
          model.adoptionDone();
          for (const [act, flush] of trace) {
            clock.now += 1_500;
            act(model, inputs);
            if (flush) drain(model, desired);
          }
          drain(model, desired);
          model.collect();
          drain(model, desired);

          const again = new Desired();
          const fresh = newModel(0);
          fresh.adopt(desired.adopted());
          inputs.load(fresh, () => {
            if (rounds) fresh.take();
          });
          fresh.adoptionDone();
          fresh.collect();
          drain(fresh, again);
          expect(again.plain()).toEqual(desired.plain());
        },
      ),
      { numRuns: runs(300) },
    );
  });

  it('peer sets hold exactly the identities that match, slices exactly the pods with an address, and references resolve', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80, size: 'max' }), (trace) => {
        const inputs = new Inputs();
        const desired = new Desired();
        const model = newModel();
        for (const act of trace) act(model, inputs);
        drain(model, desired);
        const labels = new Map<number, LabelMap>([...desired.identities.values()].map((row) => [row.id, row.labels]));
        for (const set of desired.peerSets.values()) {
          const expected = [...labels].filter(([, map]) => matches(set.selector, map)).map(([id]) => id);
          expect(set.identities).toEqual(expected.sort((a, b) => a - b));
        }
        // What stays enforced of a policy that cannot be read is its own past, never that of another of its name.
        const uids = new Map([...inputs.policies.values()].map((row) => [row.uid, row.generation]));
        for (const { source } of desired.resolved.values()) {
          expect(source.generation).toBeLessThanOrEqual(uids.get(source.uid) ?? Number.NaN);
        }
        const named = new Set([...desired.resolved.values()].flatMap((row) => [...hashesOf(row.rules)]));
        expect(new Set([...desired.peerSets.values()].map((row) => row.hash))).toEqual(named);
        const claimed = [...new Set([...inputs.pods.values()].flatMap(({ addresses }) => addresses))];
        const owners = claimed.flatMap((address) => {
          const owner = ownerOf(inputs, address);
          return owner === undefined ? [] : [[address, owner] as const];
        });
        expect(desired.owners()).toEqual(Object.fromEntries(owners));
        const cookies = [...desired.resolved.values()].flatMap((row) => row.rules.map((rule) => rule.cookie));
        expect(new Set(cookies).size).toBe(cookies.length);
        for (const cookie of cookies) expect(cookie).toBeGreaterThan(0);
        // One number for each label set.
        const keys = [...labels.values()].map((map) => JSON.stringify(map));
        expect(new Set(keys).size).toBe(keys.length);
      }),
      { numRuns: runs(300) },
    );
  });

  it('a pod keeps its slice, and slices hold at most 100 pods', () => {
    const model = newModel();
    const desired = new Desired();
    model.setNamespace(namespaceRow(namespace('a')));
    const place = (n: number): void =>
      model.setPod(podRow(pod(`a/p${n}`, { app: 'x' }, { node: 'n1', ip: `10.0.${n >> 8}.${n & 255}` })));
    model.setNode(nodeRow(node('n1')));
    for (let n = 0; n < SLICE_SIZE * 2 + 50; n += 1) place(n);
    drain(model, desired);
    expect([...desired.slices.values()].map((row) => row.endpoints.length).sort((a, b) => b - a)).toEqual([
      100, 100, 50,
    ]);
    const others = [...desired.slices.values()].filter((row) => row.name !== 'ces-a-0');
    for (let n = 0; n < 50; n += 1) model.deletePod(`a/p${n}`);
    const edits = model.flush();
    expect(edits.slices.map((edit) => edit.key)).toEqual(['ces-a-0']);
    desired.apply(edits);
    for (const row of others) expect(desired.slices.get(row.name)).toBe(row);
  });

  it('a status waits for the generation, not for the uid alone', () => {
    const model = newModel();
    const desired = new Desired();
    model.setNamespace(namespaceRow(namespace('a')));
    model.setNode(nodeRow(node('n1')));
    model.setPod(podRow(pod('a/p', { app: 'x' }, { ip: '10.0.0.1', node: 'n1' })));
    const at = (generation: number): PolicyRow => {
      const object = cnp('a/p', { endpointSelector: {}, ingress: [{}] });
      return policyRow({ ...object, metadata: { ...object.metadata, uid: 'u', generation } }, 'CiliumNetworkPolicy');
    };
    const programmed = (): string | undefined => {
      drain(model, desired);
      const found = desired.statuses.get('cnp/a/p')?.status.conditions.find((c) => c.type === 'Programmed');
      return `${found?.status}/${found?.reason}/${found?.observedGeneration}`;
    };
    model.setPolicy(at(1));
    expect(programmed()).toBe('False/Progressing/1');
    model.handOut(1);
    model.setReport(nodeReportRow(report('n1', { policyVersion: '1' })));
    expect(programmed()).toBe('True/Programmed/1');
    model.setPolicy(at(2));
    expect(programmed()).toBe('False/Progressing/2');
    model.setNode(nodeRow(node('n1', 'Unknown')));
    expect(programmed()).toBe('False/Progressing/2');
    model.handOut(2);
    expect(programmed()).toBe('True/NoMatchingEndpoints/2');
  });
});

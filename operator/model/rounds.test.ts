import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { namespaceRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, knp, namespace } from '../testing.ts';
import type { TestModel } from './testing/test-model.ts';
import { clock, Desired, drain, Inputs, newModel, step } from './testing/trace.ts';

/** Rows and revisions of every table, and whether it is initialised. */
function state(model: TestModel): unknown {
  return model.db.tables().map(({ name, rows, revision, pending }) => ({ name, rows, revision, pending }));
}

const nothing = { identities: [], peerSets: [], resolved: [], slices: [], statuses: [] };
const desiredTables = (model: TestModel): unknown[] =>
  model.db
    .tables()
    .filter(({ name }) => name.startsWith('desired'))
    .map(({ rows, pending }) => [rows, pending]);

it('tables have names in camelCase', () => {
  const names = newModel(0)
    .db.tables()
    .map(({ name }) => name);
  expect(names.length).toBeGreaterThan(30);
  expect(names.filter((name) => !/^[a-z][A-Za-z0-9]*$/.test(name))).toEqual([]);
});

describe('rounds', () => {
  it('one that throws leaves nothing, and the next goes on as if it had not been', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(step, fc.boolean(), fc.boolean()), { maxLength: 40, size: 'max' }), (trace) => {
        const [failing, plain] = [newModel(0), newModel(0)];
        const [shown, expected] = [new Desired(), new Desired()];
        const [inputs, others] = [new Inputs(), new Inputs()];
        for (const [act, flush, fail] of trace) {
          clock.now += 1_500;
          act(failing, inputs);
          act(plain, others);
          if (fail) {
            const before = state(failing);
            expect(() =>
              failing.take(() => {
                throw new Error('broken');
              }),
            ).toThrow('broken');
            expect(state(failing)).toEqual(before);
          }
          if (flush) drain(failing, shown);
          if (flush) drain(plain, expected);
        }
        drain(failing, shown);
        drain(plain, expected);
        expect(shown.plain()).toEqual(expected.plain());
      }),
      { numRuns: 50 },
    );
  });

  it('show nothing until the first state is complete, and all of it then, whatever was taken in together', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(step, fc.boolean()), { maxLength: 40, size: 'max' }), (trace) => {
        const [pieces, whole] = [newModel(), newModel()];
        const inputs = new Inputs();
        const empty = Array.from({ length: 6 }, () => [0, ['derived']]);
        for (const [act, round] of trace) {
          act(pieces, inputs);
          if (round) pieces.take();
          expect(desiredTables(pieces)).toEqual(empty);
        }
        const [shown, expected] = [new Desired(), new Desired()];
        expect(shown.plain()).toEqual(nothing);
        drain(pieces, shown);
        for (const { pending } of pieces.db.tables()) expect(pending).toEqual([]);
        // Numbers and places depend on what came before what: they are taken over, so that the rest can be compared.
        whole.adopt(shown.adopted());
        inputs.load(whole);
        drain(whole, expected);
        for (const table of ['peerSets', 'resolved', 'statuses'] as const) {
          expect(expected[table]).toEqual(shown[table]);
        }
        expect(expected.owners()).toEqual(shown.owners());
        // Nor does it matter in which order pods and nodes come before that: nobody is the first one.
        const [other, again] = [newModel(), new Desired()];
        inputs.load(other, () => other.take());
        drain(other, again);
        expect(again.owners()).toEqual(shown.owners());
      }),
      { numRuns: 50 },
    );
  });

  it('of a kind that cannot be read what was resolved stays, with its peer sets, until it can be', () => {
    const spec = { podSelector: {}, ingress: [{ from: [{ podSelector: { matchLabels: { app: 'x' } } }] }] };
    const rowOf = (where: string): ReturnType<typeof policyRow> => {
      const object = knp(where, spec);
      return policyRow({ ...object, metadata: { ...object.metadata, uid: where, generation: 1 } }, 'NetworkPolicy');
    };
    const [before, first] = [newModel(), new Desired()];
    before.setNamespace(namespaceRow(namespace('a')));
    before.setPolicy(rowOf('a/stays'));
    before.setPolicy(rowOf('a/goes'));
    before.setPolicy(policyRow(cnp('a/gone', { endpointSelector: {}, egress: [{}] }), 'CiliumNetworkPolicy'));
    drain(before, first);
    expect([...first.resolved.keys()].sort()).toEqual(['cnp-a.gone', 'knp-a.goes', 'knp-a.stays']);

    const [model, desired] = [newModel(), new Desired()];
    model.adopt(first.adopted());
    model.setNamespace(namespaceRow(namespace('a')));
    model.adoptionDone(['NetworkPolicy']);
    drain(model, desired);
    expect([...desired.resolved.keys()].sort()).toEqual(['knp-a.goes', 'knp-a.stays']);
    expect(desired.peerSets.size).toBe(2);
    model.setPolicy(rowOf('a/stays'));
    drain(model, desired);
    expect(desired.resolved.get('knp-a.stays')).toEqual(first.resolved.get('knp-a.stays'));
    model.kindKnown('NetworkPolicy');
    drain(model, desired);
    expect([...desired.resolved.keys()]).toEqual(['knp-a.stays']);
    expect(desired.peerSets.size).toBe(2);
    model.deletePolicy('knp/a/stays');
    drain(model, desired);
    expect([desired.resolved.size, desired.peerSets.size]).toEqual([0, 0]);
  });
});

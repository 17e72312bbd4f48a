import { expect, it } from '@jest/globals';
import type { NodePolicyStatus } from '@weir/kube';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';

const KEY = 'cnp/a/q';

/** Node n1 hosts the pod of policy `new` and has it; of n2 nothing is known. */
function world(): TestModel {
  const model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 0 });
  model.setNamespace(namespaceRow(namespace('a')));
  for (const name of ['n1', 'n2']) model.setNode(nodeRow(node(name)));
  model.setPod(podRow(pod('a/p', { app: 'web' }, { ip: '10.0.0.1', node: 'n1' })));
  for (const name of ['q', 'other']) {
    const object = cnp(`a/${name}`, { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{}] });
    const metadata = { ...object.metadata, uid: name === 'q' ? 'new' : name, generation: 1 };
    model.setPolicy(policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
  }
  model.flush();
  model.handOut(10);
  const policies = { new: { policy: KEY, generation: 1, endpoints: 1 }, other: { generation: 1, endpoints: 1 } };
  model.setReport(nodeReportRow(report('n1', { policies, policyVersion: '10' })));
  model.flush();
  return model;
}

it.each([
  ['a policy that is gone', 'gone', 1],
  ['a policy that is gone, with no generation', 'gone', undefined],
  ['a policy that has another name', 'other', 1],
])(
  'a node that begins or ceases to say of %s that it has the name of this one counts at once',
  (_, uid, generation) => {
    const model = world();
    const said = (policy: string | undefined): string | undefined => {
      const policies = {
        [uid]: { policy, generation, endpoints: 1 },
      } as unknown as NodePolicyStatus['status']['policies'];
      model.setReport(nodeReportRow(report('n2', { policies, policyVersion: '10' })));
      model.flush();
      using snapshot = model.db.read();
      return snapshot.get(model.tables.statuses, KEY)?.row.status.conditions[2]?.reason;
    };
    expect([undefined, KEY, undefined].map(said)).toEqual(['Programmed', 'Progressing', 'Programmed']);
  },
);

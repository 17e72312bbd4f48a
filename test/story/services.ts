/** A Service whose endpoints change while a policy about pods stays as it is. */
import { eventually } from '../eventually.ts';
import { policy } from './policies.ts';
import { settled } from './settled.ts';
import type { Stage } from './stage.ts';

const metadata = (name: string): object => ({ name, namespace: 'default' });
const service = {
  apiVersion: 'v1',
  kind: 'Service',
  metadata: metadata('front'),
  spec: { ports: [{ port: 8000, protocol: 'TCP' }] },
};

function slice(address: string): object {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { ...metadata('front-1'), labels: { 'kubernetes.io/service-name': 'front' } },
    addressType: 'IPv4',
    endpoints: [{ addresses: [address], conditions: { ready: true } }],
    ports: [{ name: '', port: 80, protocol: 'TCP' }],
  };
}

export async function playServices(stage: Stage): Promise<void> {
  const { cluster } = stage;
  const addressOf = async (pod: string): Promise<string> => (await cluster.host(pod)).address;
  await cluster.applyObjects([service, slice(await addressOf('app2'))]);
  const front = await cluster.kubectl(['get', 'service', 'front', '-o', 'jsonpath={.spec.clusterIP}']);
  const asks = (from: string) => cluster.probe(from, front, { port: 8000, timeoutMs: 500 });
  stage.say(`Service front is ${front}:8000; pod app2 answers for it`);
  await stage.kubectl('get', 'service', 'front');
  for (const from of ['app3', 'app3-far'])
    await eventually(
      () => asks(from),
      (answer) => answer === 'reached',
    );
  await stage.apply(policy.toApp2, 'cnp/to-app2');
  const expectation = { from: ['app3', 'app3-far', 'app1'], to: [`${front}:8000`, 'app1:80'] };
  await stage.expect({ ...expectation, reaches: (from, to) => from === 'app1' || to.startsWith(front) });

  stage.forgetEvents();
  await cluster.applyObjects([slice(await addressOf('app1'))]);
  stage.say('now app1 answers for it: the same address, and nobody has changed the policy');
  for (const from of ['app3', 'app3-far'])
    await eventually(
      () => asks(from),
      (answer) => answer === 'dropped',
    );
  await stage.expect({ ...expectation, reaches: (from) => from === 'app1' });
  await stage.dropEvent(
    'what app3 sent to the Service',
    ({ source, destination }) => source.name === 'default/app3' && destination.name === 'default/app1',
  );
  await stage.kubectl('get', 'cnp');
  await stage.kubectl('delete', 'cnp/to-app2', 'service/front', 'endpointslice/front-1');
  await settled(stage);
}

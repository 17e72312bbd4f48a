/** What a pod may ask of DNS, and reach by the answers. */
import { policy } from './policies.ts';
import { settled } from './settled.ts';
import type { Stage } from './stage.ts';

const [API, OTHER] = ['203.0.113.9', '10.2.0.1'] as const;
const ZONE = { 'api.example.com': [API], 'other.example.com': [OTHER], 'secret.example.org': [OTHER] };
const ASKERS = ['app3', 'app3-far'];

export async function playNames(stage: Stage): Promise<void> {
  const { cluster } = stage;
  const server = await cluster.host('app2');
  await server.process.names(ZONE);
  stage.say(`pod app2 (${server.address}) answers for ${Object.keys(ZONE).join(', ')}`);
  const ask = async (from: string, name: string, answer: string): Promise<void> => {
    const { process } = await cluster.host(from);
    const seen = await process.lookUp({ server: server.address, name, type: 'A', timeoutMs: 60_000 });
    stage.check(String(seen) === answer, `${from} asks for ${name}: ${String(seen)}`);
  };
  const reached = (...names: readonly string[]) => ({
    from: [...ASKERS, 'app1'],
    to: [`${API}:80`, `${OTHER}:80`],
    reaches: (from: string, to: string) => from === 'app1' || names.some((name) => to.startsWith(name)),
  });
  await stage.apply(policy.names, 'cnp/by-name');
  await stage.expect(reached());
  for (const from of ASKERS) {
    await ask(from, 'secret.example.org', 'EREFUSED');
    await ask(from, 'other.example.com', OTHER);
    await ask(from, 'api.example.com', API);
  }
  await stage.expect(reached(API));
  await stage.weir(1, 'fqdn', 'cache', 'list');
  await stage.weir(1, 'explain', 'default/app3', 'api.example.com', '80');
  await stage.kubectl('get', 'cnp');
  await stage.kubectl('delete', 'cnp', 'by-name');
  await settled(stage);
}

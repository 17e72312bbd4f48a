/** `weir service get` takes what `weir service list` shows. */
import { expect, it } from '@jest/globals';
import { Command } from 'commander';
import type { ServiceModel } from '../api/models.ts';
import { AgentError } from './errors.ts';
import { addServiceCommands } from './service-commands.ts';

const model = (name: string, port: string): ServiceModel => {
  const address = { ip: '10.96.0.1', port: 80, protocol: 'tcp', scope: 'internal' } as const;
  const policies = { intTrafficPolicy: 'Cluster', extTrafficPolicy: 'Cluster', 'affinity-seconds': 0 } as const;
  return {
    spec: {
      ...{ id: 1, 'frontend-address': address, 'frontend-addresses': [address], 'backend-addresses': [] },
      flags: { type: 'ClusterIP', namespace: 'ns', name, 'port-name': port, ...policies },
    },
    status: {},
  };
};

const models = [model('web', 'http'), model('web', 'admin'), model('db', '')];

async function weir(...args: string[]): Promise<string> {
  return asked(async () => models, ...args);
}

async function asked(answer: () => Promise<unknown>, ...args: string[]): Promise<string> {
  let said = '';
  const program = new Command();
  addServiceCommands(program, {
    client: () => ({ get: async <T>() => (await answer()) as T }),
    out: { write: (text) => (said += text) },
    err: { write: () => undefined },
    json: () => false,
    setExitCode: () => undefined,
  });
  await program.parseAsync(['service', ...args], { from: 'user' });
  return said;
}

it('gets a Service, or one port of it, by the name that the list has', async () => {
  const portsOf = async (name: string) =>
    (JSON.parse(await weir('get', name)) as ServiceModel[]).map(({ spec }) => spec.flags['port-name']);
  expect(await weir('list')).toContain('ns/web:http');
  expect(await portsOf('ns/web')).toEqual(['http', 'admin']);
  expect(await portsOf('ns/web:http')).toEqual(['http']);
  expect(await portsOf('ns/db')).toEqual(['']);
});

it('says how to name a Service', async () => {
  await expect(weir('get', 'ns/web:none')).rejects.toThrow(
    'no Service "ns/web:none" is translated; `weir service list`',
  );
  await expect(weir('get', 'web')).rejects.toThrow('"web" is no Service: write NAMESPACE/NAME');
});

it('says that Services are off', async () => {
  const none = () => Promise.reject(new AgentError('no such path: GET /v1/service', 1, { status: 404 }));
  await expect(asked(none, 'list')).rejects.toThrow('its agent runs with --services off');
  await expect(asked(none, 'get', 'ns/web')).rejects.toThrow('its agent runs with --services off');
});

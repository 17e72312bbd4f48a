import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { eventObject } from '../../../node-agent/kubernetes/pod-event-writer.ts';
import { createApiServer, StatusError } from './index.ts';
import { at, type JsonObject, list, text } from './json.ts';
import { core, named, WIDGETS, widget, widgetDefinition } from './test-support.ts';
import type { ApiServer, ObjectRef } from './types.ts';

const DEPLOYMENTS = { group: 'apps', version: 'v1', plural: 'deployments', namespace: 'default' };

const apply = (
  server: ApiServer,
  ref: ObjectRef,
  manager: string,
  config: object,
  force = false,
): Promise<JsonObject> => server.client.patch(ref, 'apply', config, { fieldManager: manager, force });

const owners = (object: JsonObject): string[] =>
  list(object, 'metadata', 'managedFields').map((entry) => text(entry, 'manager'));

describe('server-side apply', () => {
  const server = createApiServer({ crds: [widgetDefinition()] });

  it('removes what its manager gives up, unless another manager holds it too', async () => {
    const ref = named(WIDGETS, 'shared');
    const spec = (ports: JsonObject[]): object => widget('shared', { size: 1, ports });
    await apply(server, ref, 'one', spec([{ port: 1, name: 'a' }, { port: 2 }]));
    const both = await apply(server, ref, 'two', { ...widget('shared', { ports: [{ port: 2 }, { port: 3 }] }) });
    expect(at(both, 'spec', 'ports')).toEqual([{ port: 1, name: 'a' }, { port: 2 }, { port: 3 }]);
    const less = await apply(server, ref, 'one', spec([]));
    expect(at(less, 'spec', 'ports')).toEqual([{ port: 2 }, { port: 3 }]);
    const none = await apply(server, ref, 'two', widget('shared', { ports: [] }));
    expect(at(none, 'spec', 'ports')).toEqual([]);
  });

  it('names every conflicting field and its owner', async () => {
    const ref = named(WIDGETS, 'contested');
    await apply(server, ref, 'one', widget('contested', { size: 1, color: 'red', ports: [{ port: 1, name: 'a' }] }));
    const error = await apply(
      server,
      ref,
      'two',
      widget('contested', { size: 2, ports: [{ port: 1, name: 'b' }] }),
    ).catch((reason: unknown) => reason);
    if (!(error instanceof StatusError)) throw new Error('expected a conflict');
    expect([error.httpStatus, error.code]).toEqual([409, 'Conflict']);
    expect(error.details?.causes?.map((cause) => cause.field).sort()).toEqual([
      '.spec.ports[port=1].name',
      '.spec.size',
    ]);
    const forced = await apply(
      server,
      ref,
      'two',
      widget('contested', { size: 2, ports: [{ port: 1, name: 'b' }] }),
      true,
    );
    expect([at(forced, 'spec', 'size'), at(forced, 'spec', 'color')]).toEqual([2, 'red']);
    const again = await apply(server, ref, 'one', widget('contested', { size: 2 }));
    expect(at(again, 'spec', 'ports')).toEqual([{ port: 1, name: 'b' }]);
    expect(owners(again).sort()).toEqual(['one', 'two']);
  });

  it('conflicts with plain updates, and keeps status and spec managers apart', async () => {
    const ref = named(WIDGETS, 'updated');
    await apply(server, ref, 'one', widget('updated', { size: 1 }));
    await server.client.patch(ref, 'merge', { spec: { size: 5 } }, { fieldManager: 'editor' });
    const error = await apply(server, ref, 'one', widget('updated', { size: 1 })).catch((reason: unknown) =>
      String(reason),
    );
    expect(error).toContain('conflict with "editor" using example.com/v1');
    const status = { ...widget('updated', {}), status: { conditions: [{ type: 'Ready', status: 'True' }] } };
    const reported = await server.client.patch(ref, 'apply', status, { fieldManager: 'one', subresource: 'status' });
    expect(at(reported, 'spec', 'size')).toBe(5);
    const entries = list(reported, 'metadata', 'managedFields');
    expect(entries.some((entry) => text(entry, 'manager') === 'one' && text(entry, 'subresource') === 'status')).toBe(
      true,
    );
  });

  it('merges built-in lists by their keys: containers by name, ports by number and protocol', async () => {
    const ref = named(DEPLOYMENTS, 'keys');
    const deployment = (containers: JsonObject[]): object => ({
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'keys' },
      spec: {
        selector: { matchLabels: { a: 'b' } },
        template: { metadata: { labels: { a: 'b' } }, spec: { containers } },
      },
    });
    const main = { name: 'main', image: 'm:1', ports: [{ containerPort: 53, protocol: 'UDP' }, { containerPort: 53 }] };
    await apply(server, ref, 'one', deployment([main]));
    const side = { name: 'side', image: 's:1' };
    const merged = await apply(server, ref, 'two', {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'keys' },
      spec: { template: { spec: { containers: [side] } } },
    });
    const names = list(merged, 'spec', 'template', 'spec', 'containers').map((entry) => text(entry, 'name'));
    expect(names.sort()).toEqual(['main', 'side']);
    const kept = await apply(server, ref, 'one', deployment([{ ...main, ports: [{ containerPort: 53 }] }]));
    const found = list(kept, 'spec', 'template', 'spec', 'containers').find((entry) => text(entry, 'name') === 'main');
    expect(at(found, 'ports')).toEqual([{ containerPort: 53, protocol: 'TCP' }]);
  });

  it('requires a field manager over HTTP', async () => {
    const { url } = await server.listen();
    const response = await fetch(`${url}/api/v1/namespaces/default/configmaps/x`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/apply-patch+yaml' },
      body: 'apiVersion: v1\nkind: ConfigMap\n',
    });
    expect(response.status).toBe(422);
    expect(text((await response.json()) as JsonObject, 'message')).toContain('fieldManager: Required value');
    await server.stop();
  });

  /** Two managers apply random maps; the model is: each key holds the last value applied by a manager that still wants it. */
  it("takes an agent's Event, and takes it again with another count", async () => {
    const uid = 'b0c0ffee-0000-4000-8000-000000000001';
    const row = { key: 'x', reason: 'EnforcementRemoved', message: 'put back', first: 0 };
    for (const [pod, node] of [
      [{ namespace: 'default', name: 'node-1', uid: 'node-1' }, true],
      [{ namespace: 'default', name: 'app1', uid }, undefined],
    ] as const) {
      for (const count of [1, 2]) {
        const told = eventObject({ ...row, pod, count, last: count * 60_000, ...(node && { node }) }, 'node-1');
        const taken = await apply(server, named(core('events'), told.metadata.name), 'weir-agent', told, true);
        expect(taken).toMatchObject({
          count,
          reason: 'EnforcementRemoved',
          lastTimestamp: `1970-01-01T00:0${count}:00Z`,
        });
      }
    }
    const items = list(await server.client.list(core('events')), 'items');
    expect(items.map((event) => text(event, 'involvedObject', 'name')).sort()).toEqual(['app1', 'node-1']);
  });

  it('agrees with a plain model for two managers applying maps by force', async () => {
    const keys = ['a', 'b', 'c', 'd'];
    const step = fc.record({
      manager: fc.constantFrom('one', 'two'),
      data: fc.dictionary(fc.constantFrom(...keys), fc.constantFrom('x', 'y'), { maxKeys: 4 }),
    });
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 8 }), async (steps) => {
        run += 1;
        const ref = named(core('configmaps'), `model-${run}`);
        const values: Record<string, string> = {};
        const held: Record<string, Set<string>> = { one: new Set(), two: new Set() };
        for (const { manager, data } of steps) {
          const result = await apply(
            server,
            ref,
            manager,
            { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: ref.name }, data },
            true,
          );
          const [mine, other] = manager === 'one' ? [held.one, held.two] : [held.two, held.one];
          for (const key of mine ?? []) if (!Object.hasOwn(data, key) && other?.has(key) !== true) delete values[key];
          mine?.clear();
          for (const [key, value] of Object.entries(data)) {
            if (values[key] !== value) other?.delete(key);
            values[key] = value;
            mine?.add(key);
          }
          expect(at(result, 'data') ?? {}).toEqual(values);
        }
      }),
      { numRuns: 100 },
    );
  });
});

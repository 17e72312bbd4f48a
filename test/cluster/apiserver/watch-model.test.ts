import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { Core } from './core.ts';
import { type JsonObject, text } from './json.ts';
import { Watch, type WatchEvent } from './watch.ts';

const step = fc.record({
  name: fc.constantFrom('a', 'b', 'c'),
  action: fc.constantFrom('put', 'delete'),
  label: fc.constantFrom('yes', 'no'),
});

const context = { fieldManager: 't', dryRun: false, fieldValidation: 'Strict', subresource: '', force: true } as const;

/** A client's copy of what matches, kept by events alone; it refuses events that do not fit what it holds. */
class Replica {
  readonly held = new Map<string, JsonObject>();
  revision = '';

  take({ type, object }: WatchEvent): void {
    const name = text(object, 'metadata', 'name');
    this.revision = text(object, 'metadata', 'resourceVersion');
    if (type === 'BOOKMARK') return;
    expect(this.held.has(name)).toBe(type !== 'ADDED');
    if (type === 'DELETED') this.held.delete(name);
    else this.held.set(name, object);
  }
}

describe('a replica fed by watches', () => {
  it('equals the list after every step, also across a reconnect', () => {
    const selector = 'on=yes';
    fc.assert(
      fc.property(fc.array(step, { maxLength: 15 }), fc.nat(15), (steps, reconnectAt) => {
        const core = new Core(() => new Date(0), 1000);
        const resource = core.registry.find('', 'v1', 'configmaps');
        if (resource === undefined) throw new Error('configmaps are built in');
        const replica = new Replica();
        const open = (resourceVersion: string): Watch => {
          const options = {
            namespace: 'default',
            labelSelector: selector,
            fieldSelector: '',
            resourceVersion,
            allowBookmarks: true,
            sendInitialEvents: undefined,
          };
          const watch = new Watch(core.store, core.reads, resource, options, (event) => replica.take(event));
          expect(watch.start()).toBe(true);
          return watch;
        };
        let watch: Watch | undefined = open('');
        watch.bookmarkIfMoved();
        const resumeFrom = (): string => (replica.revision === '' ? '0' : replica.revision);
        steps.forEach(({ name, action, label }, i) => {
          if (i === reconnectAt) {
            watch?.stop();
            watch = undefined;
          }
          const exists = core.store.get(resource.storage, 'default', name) !== undefined;
          if (action === 'put') {
            const body = {
              apiVersion: 'v1',
              kind: 'ConfigMap',
              metadata: { name, labels: { on: label } },
              data: { i: `${i}` },
            };
            core.writes.patch(resource, 'default', name, 'apply', body, { ...context, warnings: [] });
          } else if (exists) core.deletes.delete(resource, 'default', name, {});
          if (watch === undefined && i > reconnectAt) {
            if (resumeFrom() === '0') replica.held.clear();
            watch = open(resumeFrom());
          }
          if (watch === undefined) return;
          const listed = core.reads.list(resource, 'default', { labelSelector: selector }).objects;
          expect(
            [...replica.held.values()].sort((a, b) =>
              text(a, 'metadata', 'name') < text(b, 'metadata', 'name') ? -1 : 1,
            ),
          ).toEqual(listed);
        });
      }),
      { numRuns: 60 },
    );
  });
});

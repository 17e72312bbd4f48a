import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { BuiltinSchemas } from './builtin-schema.ts';
import { at, type Json, type JsonObject } from './json.ts';
import { compileJsonPath } from './jsonpath.ts';
import { mergePatch } from './patch.ts';
import { labelPredicate } from './selectors.ts';
import { strategicMerge } from './strategic-merge.ts';

const schemas = new BuiltinSchemas();
const merge = (live: JsonObject, patch: JsonObject): JsonObject =>
  strategicMerge(live, patch, schemas.ref('V1PodSpec'), schemas.resolve);

describe('strategic merge', () => {
  const live: JsonObject = {
    containers: [
      { name: 'a', image: 'a:1', env: [{ name: 'X', value: '1' }], args: ['one'] },
      { name: 'b', image: 'b:1' },
    ],
    tolerations: [{ key: 'k' }],
    nodeSelector: { old: 'yes' },
  };

  it('merges lists by key, replaces other lists, merges maps', () => {
    const merged = merge(live, {
      containers: [{ name: 'a', env: [{ name: 'Y', value: '2' }], args: ['two'] }],
      tolerations: [{ key: 'l' }],
      nodeSelector: { new: 'yes' },
    });
    expect(merged).toEqual({
      containers: [
        {
          name: 'a',
          image: 'a:1',
          env: [
            { name: 'Y', value: '2' },
            { name: 'X', value: '1' },
          ],
          args: ['two'],
        },
        { name: 'b', image: 'b:1' },
      ],
      tolerations: [{ key: 'l' }],
      nodeSelector: { old: 'yes', new: 'yes' },
    });
  });

  it('follows the directives: delete, replace, order, retained keys', () => {
    expect(at(merge(live, { containers: [{ name: 'a', $patch: 'delete' }] }), 'containers')).toEqual([
      { name: 'b', image: 'b:1' },
    ]);
    const replaced = merge(live, { containers: [{ $patch: 'replace' }, { name: 'z', image: 'z' }] });
    expect(at(replaced, 'containers')).toEqual([{ name: 'z', image: 'z' }]);
    const ordered = merge(live, { '$setElementOrder/containers': [{ name: 'b' }, { name: 'a' }] });
    expect((at(ordered, 'containers') as JsonObject[]).map((c) => c.name)).toEqual(['b', 'a']);
    expect(at(merge(live, { nodeSelector: { $patch: 'replace', only: 'x' } }), 'nodeSelector')).toEqual({ only: 'x' });
    const volumes = { volumes: [{ name: 'v', emptyDir: {} }] };
    const switched = merge(volumes, {
      volumes: [{ name: 'v', $retainKeys: ['name', 'hostPath'], hostPath: { path: '/p' } }],
    });
    expect(at(switched, 'volumes')).toEqual([{ name: 'v', hostPath: { path: '/p' } }]);
  });

  it('leaves the live object alone and is idempotent', () => {
    const entry = fc.record({ name: fc.constantFrom('a', 'b', 'c'), image: fc.constantFrom('x', 'y') });
    const containers = fc.uniqueArray(entry, { selector: (c) => c.name });
    fc.assert(
      fc.property(containers, containers, (before, patch) => {
        const start: JsonObject = { containers: before };
        const frozen = JSON.stringify(start);
        const once = merge(start, { containers: patch });
        expect(JSON.stringify(start)).toBe(frozen);
        expect(merge(once, { containers: patch })).toEqual(once);
        const names = new Set([...before, ...patch].map((c) => c.name));
        const found = new Map((once.containers as { name: string; image: string }[]).map((c) => [c.name, c.image]));
        expect(new Set(found.keys())).toEqual(names);
        for (const c of patch) expect(found.get(c.name)).toBe(c.image);
      }),
    );
  });
});

describe('JSON merge patch', () => {
  it.each<[Json, Json, Json]>([
    [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
    [{ a: 'b', b: 1 }, { a: null }, { b: 1 }],
    [{ a: [1] }, { a: [2, 3] }, { a: [2, 3] }],
    [{}, { a: { b: { c: null } } }, { a: { b: {} } }],
    [['x'], { a: 1 }, { a: 1 }],
  ])('of %j by %j gives %j', (target, patch, expected) => {
    expect(mergePatch(structuredClone(target), patch)).toEqual(expected);
  });
});

describe('label selectors', () => {
  const labels = { app: 'web', 'example.com/tier': 'one' };
  it.each<[string, boolean]>([
    ['app=web', true],
    ['app==web,example.com/tier!=two', true],
    ['app!=web', false],
    ['app in (api, web)', true],
    ['app notin (web)', false],
    ['missing notin (web)', true],
    ['example.com/tier', true],
    ['!app', false],
  ])('%s', (selector, expected) => {
    expect(labelPredicate(selector)?.({ metadata: { labels } })).toBe(expected);
  });

  it('that cannot be read are refused', () => {
    expect(() => labelPredicate('a b c')).toThrow('unable to parse requirement');
  });
});

describe('JSONPath', () => {
  const value: Json = {
    a: { 'b.c': [1, 2] },
    list: [
      { t: 'x', v: 1 },
      { t: 'y', v: 2 },
    ],
  };
  it.each<[string, Json[]]>([
    ['.a', [{ 'b.c': [1, 2] }]],
    ['.a.b\\.c[1]', [2]],
    [".a['b.c'][*]", [1, 2]],
    ['.list[?(@.t=="y")].v', [2]],
    ['.list[-1].t', ['y']],
    ['.none.more', []],
  ])('%s', (path, expected) => {
    expect(compileJsonPath(path)(value)).toEqual(expected);
  });
});

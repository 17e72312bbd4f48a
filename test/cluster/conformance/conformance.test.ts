/** The embedded API server beside what the real one said. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type ApiServer, createApiServer } from '../apiserver/index.ts';
import { ACCEPTED, type Difference, differences, GROUPS, judge, readable, readGolden, transcriptOf } from './index.ts';

let server: ApiServer;
let folder: string;
let url: string;
let kubeconfig: string;
const found: Difference[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-conformance-'));
  server = createApiServer();
  ({ url } = await server.listen());
  kubeconfig = join(folder, 'kubeconfig');
  await writeFile(kubeconfig, server.kubeconfig());
});

afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

describe('the embedded API server answers as the real one', () => {
  it.each(Object.entries(GROUPS))('%s', async (group, cases) => {
    const seen = await transcriptOf({ url, kubeconfig }, cases);
    const all = differences(readGolden(group), seen);
    found.push(...all);
    expect(readable(judge(all, ACCEPTED).open)).toBe('');
  });

  it('with no accepted difference that is gone', () => {
    expect(judge(found, ACCEPTED).stale).toEqual([]);
  });
});

describe('the comparison', () => {
  const real = { c: [{ step: 'GET /x', seen: { status: 200, body: { a: [1, {}], b: 'x' } } }] };

  it('finds what is changed, missing and added, and says where', () => {
    const other = { c: [{ step: 'GET /x', seen: { status: 404, body: { a: [1], z: null } } }] };
    expect(readable(differences(real, other))).toBe(
      [
        'c: GET /x',
        '  - status: 200',
        '  + status: 404',
        '  - body.a[1]: {}',
        '  - body.b: "x"',
        '  + body.z: null',
      ].join('\n'),
    );
  });

  it('finds steps and cases that only one server has', () => {
    expect(differences(real, {})).toEqual([{ case: 'c', step: 'GET /x', path: '', real: 'done', other: undefined }]);
    expect(differences({}, real)).toEqual([{ case: 'c', step: 'GET /x', path: '', real: undefined, other: 'done' }]);
    expect(differences(real, real)).toEqual([]);
  });

  it('accepts what the list names and reports what the list names in vain', () => {
    const all = differences(real, { c: [{ step: 'GET /x', seen: { status: 200, body: { a: [1, {}], b: 'y' } } }] });
    const entry = { case: 'c', step: 'GET *', path: 'body.b', reason: 'a test' };
    const vain = { case: 'c', step: 'GET *', path: 'body.a', reason: 'a test' };
    expect(judge(all, [entry, vain])).toEqual({ open: [], accepted: all, stale: [vain] });
    expect(judge(all, [vain]).open).toEqual(all);
  });
});

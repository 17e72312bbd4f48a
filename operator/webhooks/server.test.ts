import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { Certificate } from '@weir/process/tls-server';
import { makeCertificate } from '../../shared/process/testing/certificates.ts';
import type { AdmissionRequest, Webhook } from '../parts/contract.ts';
import { WebhookServer } from './server.ts';

let folder: string;
let ca: string;
let server: WebhookServer;
let failed: string[];
let asked: AdmissionRequest[];
const spans: (readonly [from: number, to: number])[] = [];

const hook = (path: string, review: Webhook['review']): Webhook => ({ path, review });
const WEBHOOKS: readonly Webhook[] = [
  hook('/odd', ({ name }) =>
    name === 'even' ? { allowed: false, message: 'it is even' } : { allowed: true, warnings: ['it is odd'] },
  ),
  hook('/plain', async (asking) => {
    asked.push(asking);
    return { allowed: true };
  }),
  hook('/throws', () => {
    throw new Error('secret reason');
  }),
  hook('/hangs', () => new Promise(() => {})),
  hook('/slow', () => {
    const from = performance.now();
    while (performance.now() < from + 5);
    spans.push([from, performance.now()]);
    return { allowed: true };
  }),
];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-webhooks-'));
  ca = await makeCertificate(folder);
  failed = [];
  asked = [];
  const certificate = async (): Promise<Certificate> => ({
    cert: ca,
    key: await readFile(join(folder, 'tls.key'), 'utf8'),
  });
  server = new WebhookServer({
    host: '127.0.0.1',
    port: 0,
    certificates: certificate,
    webhooks: () => WEBHOOKS,
    onError: (path, error) => failed.push(`${path}: ${(error as Error).message}`),
    log: { info: () => {}, warn: () => {}, error: (_fields, message) => failed.push(message) },
    reviewMs: 50,
  });
  await server.start();
});
afterEach(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

interface Answer {
  readonly status: number;
  readonly review: { readonly response: Readonly<Record<string, unknown>> };
}

function post(path: string, body: string, method = 'POST'): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const to = { host: '127.0.0.1', port: server.port, servername: 'localhost', ca, agent: false, path, method };
    const sent = request(to, (answer) => {
      const pieces: Buffer[] = [];
      answer.on('data', (piece: Buffer) => pieces.push(piece));
      answer.on('end', () =>
        resolve({ status: answer.statusCode ?? 0, review: JSON.parse(Buffer.concat(pieces).toString()) as never }),
      );
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

const review = (more: Readonly<Record<string, unknown>> = {}): string =>
  JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request: { uid: 'u1', ...more } });

async function ask(path: string, more: Readonly<Record<string, unknown>> = {}): Promise<readonly unknown[]> {
  const { status, review: answer } = await post(path, review(more));
  expect(answer).toMatchObject({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview' });
  return [status, answer.response];
}

describe('a webhook', () => {
  it('takes no more than a quarter of the time, whoever asks', async () => {
    await Promise.all(Array.from({ length: 4 }, () => post('/slow', review())));
    const pauses = spans.slice(1).map(([from], at) => {
      const [begun = 0, ended = 0] = spans[at] ?? [];
      return (from - ended) / (ended - begun);
    });
    expect(pauses).toHaveLength(3);
    for (const pause of pauses) expect(pause).toBeGreaterThan(2.5);
  });

  it('answers with its verdict, its message and its warnings', async () => {
    expect(await ask('/odd', { name: 'one' })).toEqual([200, { uid: 'u1', allowed: true, warnings: ['it is odd'] }]);
    expect(await ask('/odd?timeout=10s', { name: 'even' })).toEqual([
      200,
      { uid: 'u1', allowed: false, status: { code: 403, message: 'it is even' } },
    ]);
  });

  it('is given the objects, but for what is nested deeper than anybody reads', async () => {
    const deep = JSON.parse(`${'{"a":'.repeat(1_000)}1${'}'.repeat(1_000)}`) as object;
    expect(await ask('/plain', { object: { kind: 'Thing' }, oldObject: deep })).toEqual([
      200,
      { uid: 'u1', allowed: true },
    ]);
    expect(asked).toMatchObject([{ uid: 'u1', object: { kind: 'Thing' } }]);
    expect(JSON.stringify(asked[0]?.oldObject)).toMatch(/nested deeper than 100 levels/);
  });

  it('that throws or hangs is a call that failed, and says no more than that', async () => {
    expect(await ask('/throws')).toEqual([
      500,
      { uid: 'u1', allowed: false, status: { code: 500, message: "the review failed; see the operator's log" } },
    ]);
    expect(await ask('/hangs')).toEqual([
      504,
      { uid: 'u1', allowed: false, status: { code: 504, message: 'the review took more than 50 ms' } },
    ]);
    expect(failed).toEqual(['/throws: secret reason', '/hangs: the review took more than 50 ms']);
  });
});

it('what is no question for a webhook is refused, each by its reason', async () => {
  const refused = async (path: string, body: string, method?: string): Promise<unknown> => {
    const { status, review: answer } = await post(path, body, method);
    expect(answer.response).toMatchObject({ uid: '', allowed: false, status: { code: status } });
    return status;
  };
  expect(await refused('/', review())).toBe(404);
  expect(await refused('/odd', review(), 'PUT')).toBe(405);
  for (const body of ['', '{', 'null', '[]', '{}', review({ uid: 7 }), review().replace('/v1', '/v1beta1')])
    expect([body, await refused('/odd', body)]).toEqual([body, 400]);
  expect(await refused('/odd', review({ object: 'x'.repeat(5_000_000) }))).toBe(413);
  expect(await ask('/odd')).toMatchObject([200, { allowed: true }]);
  expect(failed).toEqual([]);
});

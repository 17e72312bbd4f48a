import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type Answer, type FakeServer, fakeServer, send } from './fake-server.ts';
import { ScrapeAccess } from './scrape-access.ts';

const USER = { username: 'system:serviceaccount:monitoring:prometheus', uid: 'u1', groups: ['g'], extra: { k: ['v'] } };
const AUTHENTICATION = '/apis/authentication.k8s.io/v1/tokenreviews';
const AUTHORIZATION = '/apis/authorization.k8s.io/v1/subjectaccessreviews';

let server: FakeServer;
let now: number;
let access: ScrapeAccess;
let answer: Answer;
let mayRead: boolean;

/** Knows the token `good` and no other. */
const kubernetes: Answer = ({ path, body }, response) => {
  const { spec } = body as { readonly spec: { readonly token?: string } };
  const status =
    path === AUTHENTICATION
      ? spec.token === 'good'
        ? { authenticated: true, user: USER }
        : { authenticated: false, error: 'no such token' }
      : { allowed: mayRead };
  send(response, 201, { ...(body as object), metadata: { creationTimestamp: null }, status });
};

beforeEach(async () => {
  now = 1_000;
  mayRead = true;
  answer = kubernetes;
  server = await fakeServer((seen, response) => answer(seen, response));
  access = new ScrapeAccess({ client: server.client, now: () => now });
});
afterEach(() => server.stop());

const asked = () => server.requests.map(({ path }) => path);

describe('ScrapeAccess', () => {
  it('asks whose token it is and whether that user may get /metrics', async () => {
    expect(await access.refusal('Bearer good')).toBeUndefined();
    expect(server.requests.map(({ method, path, body }) => ({ method, path, body }))).toMatchObject([
      { method: 'POST', path: AUTHENTICATION, body: { kind: 'TokenReview', spec: { token: 'good' } } },
      {
        method: 'POST',
        path: AUTHORIZATION,
        body: {
          kind: 'SubjectAccessReview',
          spec: {
            user: USER.username,
            uid: 'u1',
            groups: ['g'],
            extra: { k: ['v'] },
            nonResourceAttributes: { path: '/metrics', verb: 'get' },
          },
        },
      },
    ]);
  });

  it('refuses whoever has no token, without asking anybody', async () => {
    for (const header of [undefined, '', 'Basic good', 'Bearer', 'Bearer ', 'Bearer a b', 'good'])
      expect(await access.refusal(header)).toMatchObject({ status: 401 });
    expect(asked()).toEqual([]);
  });

  it('refuses a token that nobody has, and a user who may not, by name of the right', async () => {
    expect(await access.refusal('Bearer bad')).toMatchObject({ status: 401 });
    mayRead = false;
    expect(await access.refusal('Bearer good')).toEqual({
      status: 403,
      text: `${USER.username} may not get /metrics: bind ClusterRole weir-metrics-reader to it`,
    });
  });

  it.each([
    ['nothing', undefined],
    ['text', 'yes'],
    ['no user', { authenticated: true }],
    ['text for true', { authenticated: 'true', allowed: 'true', user: USER }],
    ['a denial beside the allowance', { authenticated: true, user: USER, allowed: true, denied: true }],
  ])('an answer that says %s allows nothing', async (_, status) => {
    answer = ({ path }, response) => send(response, 201, { kind: path, status });
    expect([401, 403]).toContain((await access.refusal('Bearer good'))?.status);
  });

  it('remembers an allowance for a minute, and a refusal for less', async () => {
    for (let times = 0; times < 3; times++) expect(await access.refusal('Bearer good')).toBeUndefined();
    expect(asked()).toHaveLength(2);
    mayRead = false;
    now += 59_000;
    expect(await access.refusal('Bearer good')).toBeUndefined();
    now += 2_000;
    expect(await access.refusal('Bearer good')).toMatchObject({ status: 403 });
    expect(await access.refusal('Bearer good')).toMatchObject({ status: 403 });
    expect(asked()).toHaveLength(4);
    mayRead = true;
    now += 11_000;
    expect(await access.refusal('Bearer good')).toBeUndefined();
  });

  it('asks once for many who ask at once with one token', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => access.refusal('Bearer good')));
    expect(all).toEqual(all.map(() => undefined));
    expect(asked()).toHaveLength(2);
  });

  it('gives nothing while the API server does not answer, and remembers nothing of it', async () => {
    answer = (_, response) => send(response, 500, { message: 'etcd is away' });
    expect(await access.refusal('Bearer good')).toMatchObject({ status: 503, text: expect.stringContaining('etcd') });
    answer = (_, response) => send(response, 403, { message: 'tokenreviews is forbidden' });
    expect(await access.refusal('Bearer good')).toMatchObject({
      status: 503,
      text: expect.stringContaining('forbidden'),
    });
    answer = kubernetes;
    expect(await access.refusal('Bearer good')).toBeUndefined();
  });

  it('asks the API server little for whoever tries many tokens, and forgets nobody who may for them', async () => {
    expect(await access.refusal('Bearer good')).toBeUndefined();
    const held: (() => void)[] = [];
    answer = (seen, response) => void held.push(() => kubernetes(seen, response));
    const tries = Array.from({ length: 500 }, (_, at) => access.refusal(`Bearer bad${at}`));
    const early = await Promise.all(tries.slice(100));
    expect(new Set(early.map((each) => each?.status))).toEqual(new Set([429]));
    expect(await access.refusal('Bearer good')).toBeUndefined();
    while (held.length < 4) await new Promise((resolve) => setImmediate(resolve));
    answer = kubernetes;
    for (const release of held) release();
    await Promise.all(tries);
    for (let at = 0; at < 300; at++) await access.refusal(`Bearer worse${at}`);
    const before = asked().length;
    expect(await access.refusal('Bearer good')).toBeUndefined();
    expect(asked()).toHaveLength(before);
  });

  it('asks about a token that was let in before, though strangers have every place', async () => {
    expect(await access.refusal('Bearer good')).toBeUndefined();
    const held: (() => void)[] = [];
    answer = (seen, response) => {
      if ((seen.body as { spec: { token?: string } }).spec.token?.startsWith('bad'))
        held.push(() => kubernetes(seen, response));
      else kubernetes(seen, response);
    };
    const strangers = Array.from({ length: 4 }, (_, at) => access.refusal(`Bearer bad${at}`));
    while (held.length < 4) await new Promise((resolve) => setImmediate(resolve));
    now += 60_001;
    expect(await access.refusal('Bearer new')).toMatchObject({ status: 429 });
    expect(await access.refusal('Bearer good')).toBeUndefined();
    for (const release of held) release();
    await Promise.all(strangers);
    expect(await access.refusal('Bearer new')).toMatchObject({ status: 401 });
  });
});

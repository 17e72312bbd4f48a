/** Credentials are in requests and nowhere else: not in an error, however it is printed. */
import { inspect } from 'node:util';
import { afterEach, expect, it } from '@jest/globals';
import { pino } from 'pino';
import { type Answer, type FakeServer, fakeServer, send } from './fake-server.ts';
import { resources } from './resources.ts';

const SECRET = 'secret-token';
let server: FakeServer | undefined;
afterEach(async () => {
  await server?.stop();
  server = undefined;
});

/** All that a log line, a status or a debugger would show of it. */
function shown(value: unknown): string {
  const lines: string[] = [];
  const log = pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) });
  const message = value instanceof Error ? value.message : '';
  log.error({ err: value, error: message }, 'x');
  log.error({ value }, 'x');
  const stack = value instanceof Error ? value.stack : '';
  return [...lines, String(value), stack, inspect(value, { depth: 30, showHidden: true, getters: true })].join('\n');
}

it.each<readonly [string, Answer]>([
  ['a refusal', (_, response) => send(response, 403, { kind: 'Status', reason: 'Forbidden', message: 'no' })],
  ['an unknown credential', (_, response) => send(response, 401, { kind: 'Status', reason: 'Unauthorized' })],
  ['a failure that is no JSON', (_, response) => response.writeHead(500).end('<html>')],
  ['an answer that is no JSON', (_, response) => response.writeHead(200).end('{"a":')],
  ['a connection that breaks', (_, response) => response.destroy()],
  ['a silent server', () => undefined],
])('after %s the error shows no credential', async (_, answer) => {
  // On a busy machine the first request takes a while to be sent; only the silent server lets the time run out.
  server = await fakeServer(answer, { requestTimeoutMs: 5_000 });
  const { client, requests } = server;
  const error: unknown = await client.list(resources.Pod).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(Error);
  // It was sent, so that there is something to show.
  expect(requests[0]?.headers.authorization).toBe(`Bearer ${SECRET}`);
  expect(shown(new Error(SECRET))).toContain(SECRET);
  expect(shown(error)).not.toContain(SECRET);
});

it('after a watch that ends its errors show none', async () => {
  server = await fakeServer((_, response) => response.destroy());
  const errors: unknown[] = [];
  const { client } = server;
  await client
    .watch(resources.Pod, { resourceVersion: '1' })
    [Symbol.asyncIterator]()
    .next()
    .catch((error: unknown) => errors.push(error));
  expect(errors).toHaveLength(1);
  expect(shown(errors[0])).not.toContain(SECRET);
});

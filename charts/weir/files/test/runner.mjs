// helm test. Has two client pods connect to a server pod and compares with what the test's policy says:
//   allowed -> 8080  connected: a rule allows this client on this port
//   denied  -> 8080  timeout:   no rule allows that client on this port, so the kernel drops its packets
//   denied  -> 8081  connected: a rule allows everybody on this port, so that client and server do reach each other
// Passes when all three are so, three times in a row, within the time given; a policy takes a moment to reach the kernel.
import { readFileSync } from 'node:fs';
import { get as getHttp } from 'node:http';
import { get as getHttps } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';

const { KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, WEIR_TEST_CONTROL = '8090' } = process.env;
const ACCOUNT = process.env.WEIR_TEST_ACCOUNT ?? '/var/run/secrets/kubernetes.io/serviceaccount';
const TIMEOUT_MS = Number(process.env.WEIR_TEST_TIMEOUT ?? '120') * 1_000;
const ROUNDS = 3;
const REQUEST_TIMEOUT_MS = 5_000;
const EXPECTED = [
  { from: 'allowed', port: 8080, expected: 'connected', why: 'a rule allows it' },
  { from: 'denied', port: 8080, expected: 'timeout', why: 'no rule allows it' },
  { from: 'denied', port: 8081, expected: 'connected', why: 'a rule allows everybody on this port' },
];
const ROLES = ['server', 'allowed', 'denied'];

const began = Date.now();
let last = 'nothing was tried';
let good = 0;
while (good < ROUNDS) {
  if (Date.now() - began > TIMEOUT_MS) fail();
  try {
    good = (await round()) ? good + 1 : 0;
  } catch (error) {
    good = 0;
    say(`  ${error instanceof Error ? error.message : String(error)}`);
  }
  if (good < ROUNDS) await delay(500);
}
process.stdout.write(
  `${last}\nok: what the policy allows is connected, what it does not allow is dropped (${ROUNDS} times in a row)\n`,
);

async function round() {
  const addresses = await podAddresses();
  const missing = ROLES.filter((role) => addresses[role] === undefined);
  if (missing.length > 0) {
    say(`  waiting for the pods: ${missing.join(', ')}`);
    return false;
  }
  const results = await Promise.all(
    EXPECTED.map(async ({ from, port, expected, why }) => {
      const path = `/connect?host=${encodeURIComponent(addresses.server)}&port=${port}`;
      const told = { host: addresses[from], port: Number(WEIR_TEST_CONTROL), path };
      const seen = await body(getHttp, told, `pod ${from} (${addresses[from]})`);
      return {
        ok: seen === expected,
        line: `  ${seen === expected ? 'ok   ' : 'WRONG'} ${from} -> server:${port} ${seen}; expected ${expected}: ${why}`,
      };
    }),
  );
  say(results.map(({ line }) => line).join('\n'));
  return results.every(({ ok }) => ok);
}

/** Addresses of running pods, by role. */
async function podAddresses() {
  const namespace = readFileSync(`${ACCOUNT}/namespace`, 'utf8').trim();
  const text = await body(
    getHttps,
    {
      host: KUBERNETES_SERVICE_HOST,
      port: Number(KUBERNETES_SERVICE_PORT),
      path: `/api/v1/namespaces/${namespace}/pods?labelSelector=${encodeURIComponent('app.kubernetes.io/name=weir-test-peer')}`,
      ca: readFileSync(`${ACCOUNT}/ca.crt`),
      headers: { authorization: `Bearer ${readFileSync(`${ACCOUNT}/token`, 'utf8').trim()}` },
    },
    `the API server (${KUBERNETES_SERVICE_HOST}:${KUBERNETES_SERVICE_PORT})`,
  );
  const running = JSON.parse(text).items.filter(
    ({ metadata, status }) => metadata.deletionTimestamp === undefined && status?.phase === 'Running' && status.podIP,
  );
  return Object.fromEntries(
    running.map(({ metadata, status }) => [metadata.labels['weir.dev/test-role'], status.podIP]),
  );
}

/** Text of an answer 200; throws what else happened, naming whom it asked. */
function body(get, options, whom) {
  return new Promise((resolve, reject) => {
    const request = get({ ...options, agent: false, timeout: REQUEST_TIMEOUT_MS }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part) => {
        text += part;
      });
      response.on('error', reject);
      response.on('end', () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`${whom} answered ${response.statusCode}: ${text.slice(0, 300)}`));
      });
    });
    request.on('timeout', () => request.destroy(new Error(`no answer in ${REQUEST_TIMEOUT_MS} ms`)));
    request.on('error', (error) => reject(new Error(`cannot ask ${whom}: ${error.message}`)));
  });
}

/** Says what is new. */
function say(text) {
  if (text !== last) process.stdout.write(`after ${((Date.now() - began) / 1000).toFixed(1)} s:\n${text}\n`);
  last = text;
}

function fail() {
  process.stdout.write(
    `FAILED: not so within ${TIMEOUT_MS / 1000} s. The last that was seen:\n${last}\n` +
      'See: kubectl get cnp,pods -l app.kubernetes.io/part-of=weir -A; on the nodes of the pods: weir status, weir endpoint list, weir monitor --type drop\n',
  );
  process.exit(1);
}

import { X509Certificate } from 'node:crypto';
import { afterEach, expect, it } from '@jest/globals';
import { ApiError, type KubeClient } from '@weir/kube';
import { OwnCertificate } from './own-certificate.ts';

const NAME = 'weir-webhooks';
const DAY = 86_400_000;

interface Configuration {
  readonly metadata: { readonly name: string; readonly resourceVersion: string };
  readonly webhooks: {
    readonly name: string;
    readonly clientConfig: { readonly service: object; readonly caBundle?: string };
  }[];
}

/** The API server, as far as it is asked. */
class FakeApi {
  version = 1;
  /** Thrown by the next write. */
  conflict: (() => void) | undefined;
  configuration: Configuration | undefined;

  constructor() {
    this.set(undefined);
  }

  set(caBundle: string | undefined): void {
    this.version += 1;
    const clientConfig = { service: { name: NAME }, ...(caBundle === undefined ? {} : { caBundle }) };
    this.configuration = {
      metadata: { name: NAME, resourceVersion: String(this.version) },
      webhooks: [
        { name: 'one', clientConfig },
        { name: 'two', clientConfig },
      ],
    };
  }

  readonly client = {
    get: async () => {
      if (this.configuration === undefined) throw new ApiError('not found', { status: 404, reason: 'NotFound' });
      return this.configuration;
    },
    replace: async (_resource: unknown, next: Configuration) => {
      const { conflict } = this;
      this.conflict = undefined;
      conflict?.();
      if (next.metadata.resourceVersion !== this.configuration?.metadata.resourceVersion)
        throw new ApiError('conflict', { status: 409, reason: 'Conflict' });
      this.set(next.webhooks[0]?.clientConfig.caBundle);
      expect(next).toMatchObject({ webhooks: this.configuration.webhooks });
      return next;
    },
  } as unknown as KubeClient;

  /** Of all webhooks. */
  get bundle(): string {
    const all = new Set(this.configuration?.webhooks.map(({ clientConfig }) => clientConfig.caBundle));
    expect(all.size).toBe(1);
    return Buffer.from([...all][0] ?? '', 'base64').toString();
  }
}

let now = Date.parse('2026-06-01T00:00:00Z');
const errors: unknown[] = [];
let told = 0;
const running: OwnCertificate[] = [];
afterEach(async () => {
  for (const each of running.splice(0)) await each.stop();
  errors.length = 0;
  told = 0;
});

async function started(api: FakeApi): Promise<OwnCertificate> {
  const own = new OwnCertificate({
    client: api.client,
    configuration: NAME,
    dnsName: `${NAME}.n.svc`,
    now: () => now,
    onError: (error, early) => {
      errors.push(error);
      if (!early) told += 1;
    },
    lookMs: 2,
    againMs: 2,
  });
  running.push(own);
  await own.start();
  return own;
}

async function until(check: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await check())) await new Promise((resolve) => setTimeout(resolve, 1));
}
const servedBy = async (own: OwnCertificate): Promise<string> => (await own.current()).cert;

it('is in the configuration beside those of other replicas, also when they write at once, and comes back', async () => {
  const api = new FakeApi();
  api.conflict = () => api.set(api.configuration?.webhooks[0]?.clientConfig.caBundle);
  const [one, two] = [await started(api), await started(api)];
  const [mine, theirs] = [await servedBy(one), await servedBy(two)];
  await until(() => api.bundle.includes(mine) && api.bundle.includes(theirs));
  expect(errors).toEqual([]);
  const { version } = api;
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(api.version).toBe(version);
  api.set(undefined);
  await until(() => api.bundle.includes(mine) && api.bundle.includes(theirs));
});

it('is replaced long before its time is over: the next is served once the configuration has it', async () => {
  const api = new FakeApi();
  const own = await started(api);
  const first = await servedBy(own);
  await until(() => api.bundle.includes(first));
  const { configuration } = api;
  api.configuration = undefined;
  now += 21 * DAY;
  await until(() => errors.length > 3);
  expect(await servedBy(own)).toBe(first);
  api.configuration = configuration;
  await until(async () => (await servedBy(own)) !== first);
  const second = await servedBy(own);
  expect(api.bundle).toBe(first + second);
  expect(new X509Certificate(first).validToDate.getTime()).toBeGreaterThan(now + DAY);
  now += 21 * DAY;
  await until(async () => (await servedBy(own)) !== second);
  expect(api.bundle).toBe(second + (await servedBy(own)));
});

it('tells that it cannot be written, unless the configuration comes soon after the start', async () => {
  const api = new FakeApi();
  api.configuration = undefined;
  const own = await started(api);
  await until(() => errors.length === 6);
  expect(told).toBe(0);
  await until(() => told > 1);
  expect(errors.length - told).toBe(6);
  expect(await servedBy(own)).toContain('BEGIN CERTIFICATE');
});

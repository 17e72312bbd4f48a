import { X509Certificate } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import { selfSigned } from './self-signed.ts';

const NAME = 'weir-webhooks.kube-system.svc';
const at = (text: string): number => Date.parse(text);

describe('a certificate that signs itself', () => {
  it('is for one server and a span of time, by a key that only it has', async () => {
    const made = await selfSigned(NAME, at('2026-01-02T03:04:05Z'), at('2026-02-03T04:05:06Z'));
    const read = new X509Certificate(made.cert);
    expect(read.subjectAltName).toBe(`DNS:${NAME}`);
    expect(read.checkHost(NAME)).toBe(NAME);
    expect(read.checkHost('other.kube-system.svc')).toBeUndefined();
    expect([read.validFromDate, read.validToDate]).toEqual([
      new Date('2026-01-02T03:04:05Z'),
      new Date('2026-02-03T04:05:06Z'),
    ]);
    expect(read.verify(read.publicKey)).toBe(true);
    expect(read.checkPrivateKey((await import('node:crypto')).createPrivateKey(made.key))).toBe(true);
    expect({ ca: read.ca, usage: read.keyUsage }).toEqual({ ca: false, usage: ['1.3.6.1.5.5.7.3.1'] });
    const other = await selfSigned(NAME, 0, 1);
    expect(new X509Certificate(other.cert).serialNumber).not.toBe(read.serialNumber);
    expect(read.verify(new X509Certificate(other.cert).publicKey)).toBe(false);
  });

  it('is read after 2049 and with the longest name of a Service, too', async () => {
    const long = `${'a'.repeat(63)}.${'b'.repeat(63)}.svc`;
    const read = new X509Certificate(
      (await selfSigned(long, at('2049-12-31T23:59:59Z'), at('2050-01-01T00:00:00Z'))).cert,
    );
    expect(read.checkHost(long)).toBe(long);
    expect([read.validFromDate, read.validToDate]).toEqual([
      new Date('2049-12-31T23:59:59Z'),
      new Date('2050-01-01T00:00:00Z'),
    ]);
  });
});

import { describe, expect, it } from '@jest/globals';
import { withCertificate } from './ca-bundle.ts';
import { selfSigned } from './self-signed.ts';

const NOW = Date.parse('2026-06-01T00:00:00Z');
const HOUR = 3_600_000;
const made = async (to = NOW + HOUR): Promise<string> => (await selfSigned('a.b.svc', NOW - HOUR, to)).cert;
const decoded = (bundle: string): string => Buffer.from(bundle, 'base64').toString();

describe('the bundle of a webhook', () => {
  it('gets the certificate once, after those of others', async () => {
    const [one, two] = [await made(), await made()];
    const bundle = withCertificate(withCertificate(undefined, one, NOW), two, NOW);
    expect(decoded(bundle)).toBe(`${one}${two}`);
    expect(withCertificate(bundle, one, NOW)).toBe(bundle);
    expect(withCertificate('', one, NOW)).toBe(withCertificate(undefined, one, NOW));
  });

  it('loses those whose time is over, and what is no certificate', async () => {
    const [mine, theirs, old] = [await made(), await made(), await made(NOW)];
    const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
    const bundle = Buffer.from(`text\n${old}${broken}${theirs}`).toString('base64');
    expect(decoded(withCertificate(bundle, mine, NOW))).toBe(`${theirs}${mine}`);
  });

  it('keeps the newest 16, and so does not grow with replicas that came and went', async () => {
    const all: string[] = [];
    let bundle: string | undefined;
    for (let index = 0; index < 18; index += 1) {
      all.push(await made());
      bundle = withCertificate(bundle, all[index] as string, NOW);
    }
    expect(decoded(bundle as string)).toBe(all.slice(2).join(''));
    expect(decoded(withCertificate(bundle, all[0] as string, NOW))).toBe([...all.slice(3), all[0]].join(''));
  });
});

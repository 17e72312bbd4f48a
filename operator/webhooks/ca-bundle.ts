/**
 * The certificates by which the API server knows who answers a webhook: `caBundle` of its configuration. Each replica answers with a certificate of
 * its own, and adds that; keys leave no process.
 */
import { X509Certificate } from 'node:crypto';

/** Certificates of one bundle. Those of replicas that live are the newest; beyond are those of processes that have ended. */
const MOST = 16;

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * The bundle with this certificate. Those whose time is over, and what is none, go; what others put there stays.
 * @param bundle base64 of PEM, as in the configuration; undefined: there is none
 * @param now milliseconds since the epoch
 * @returns the same text where it has the certificate and nothing to remove
 */
export function withCertificate(bundle: string | undefined, certificate: string, now: number): string {
  const mine = certificate.trim();
  const text = Buffer.from(bundle ?? '', 'base64').toString('latin1');
  const kept = (text.match(CERTIFICATE) ?? []).filter((each) => isValid(each, now));
  const all = kept.includes(mine) ? kept : [...kept, mine];
  return Buffer.from(`${all.slice(-MOST).join('\n')}\n`, 'latin1').toString('base64');
}

function isValid(pem: string, now: number): boolean {
  try {
    return new X509Certificate(pem).validToDate.getTime() > now;
  } catch {
    return false;
  }
}

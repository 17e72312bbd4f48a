import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Puts `tls.crt` and `tls.key` of a new self-signed certificate for `localhost` into the folder, and returns the certificate. */
export async function makeCertificate(folder: string): Promise<string> {
  const certificate = join(folder, 'tls.crt');
  await run('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
    ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'],
    ...['-keyout', join(folder, 'tls.key'), '-out', certificate],
  ]);
  return readFile(certificate, 'utf8');
}

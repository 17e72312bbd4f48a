/**
 * A certificate that signs itself, for a server that its clients know by exactly this certificate. Written here, because the libraries that make
 * X.509 bring twenty packages and 340 KB for these few fields, of which nothing is read back.
 */
import { generateKeyPair, type KeyObject, randomBytes, sign } from 'node:crypto';
import { promisify } from 'node:util';
import type { Certificate } from '@weir/process/tls-server';

const generate = promisify(generateKeyPair);

const OID = {
  ecdsaWithSha256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
  commonName: [0x55, 0x04, 0x03],
  keyUsage: [0x55, 0x1d, 0x0f],
  subjectAltName: [0x55, 0x1d, 0x11],
  basicConstraints: [0x55, 0x1d, 0x13],
  extendedKeyUsage: [0x55, 0x1d, 0x25],
  serverAuth: [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01],
} as const;

/** Tags of ASN.1. */
const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  text: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
  dnsName: 0x82,
  version: 0xa0,
  extensions: 0xa3,
} as const;

/**
 * A new key (ECDSA, P-256) and its certificate (RFC 5280): for a TLS server of this DNS name, and for nothing else. It can sign no other.
 * @param from, to milliseconds since the epoch
 */
export async function selfSigned(dnsName: string, from: number, to: number): Promise<Certificate> {
  const { publicKey, privateKey } = await generate('ec', { namedCurve: 'P-256' });
  const number = serial();
  const algorithm = sequence(oid(OID.ecdsaWithSha256));
  // A name of its own: OpenSSL looks for the issuer among trusted certificates by it.
  const text = Buffer.from(number.toString('hex'));
  const name = sequence(element(TAG.set, sequence(oid(OID.commonName), element(TAG.text, text))));
  const unsigned = sequence(
    element(TAG.version, element(TAG.integer, Buffer.from([2]))),
    element(TAG.integer, number),
    algorithm,
    name,
    sequence(time(from), time(to)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    element(
      TAG.extensions,
      sequence(
        extension(OID.basicConstraints, true, sequence()),
        // digitalSignature: the first of its bits, so that seven are unused.
        extension(OID.keyUsage, true, element(TAG.bits, Buffer.from([7, 0x80]))),
        extension(OID.extendedKeyUsage, false, sequence(oid(OID.serverAuth))),
        extension(OID.subjectAltName, false, sequence(element(TAG.dnsName, Buffer.from(dnsName, 'ascii')))),
      ),
    ),
  );
  const signature = sign('sha256', unsigned, privateKey);
  return { cert: pem(sequence(unsigned, algorithm, bits(signature))), key: keyText(privateKey) };
}

/** Tag, length, content (X.690, 8.1). */
function element(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), content]);
  const bytes = Buffer.from(length.toString(16).padStart(length > 0xff ? 4 : 2, '0'), 'hex');
  return Buffer.concat([Buffer.from([tag, 0x80 | bytes.length]), bytes, content]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return element(TAG.sequence, ...parts);
}

function oid(bytes: readonly number[]): Buffer {
  return element(TAG.oid, Buffer.from(bytes));
}

/** Whole bytes. */
function bits(content: Buffer): Buffer {
  return element(TAG.bits, Buffer.from([0]), content);
}

function extension(id: readonly number[], critical: boolean, content: Buffer): Buffer {
  const flag = critical ? [element(TAG.boolean, Buffer.from([0xff]))] : [];
  return sequence(oid(id), ...flag, element(TAG.octets, content));
}

/** Positive, and in its shortest form: the first byte is 1..127. */
function serial(): Buffer {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 1;
  return bytes;
}

/** RFC 5280, 4.1.2.5: with two digits of the year through 2049. */
function time(at: number): Buffer {
  const text = new Date(at).toISOString().replace(/[-:T]|\.[0-9]+/g, '');
  const short = new Date(at).getUTCFullYear() < 2050;
  return element(short ? TAG.utcTime : TAG.generalizedTime, Buffer.from(short ? text.slice(2) : text, 'ascii'));
}

function pem(der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

function keyText(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

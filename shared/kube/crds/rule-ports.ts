/** The ports of a rule: `toPorts`, `icmps`, and what is asked inside of connections. */
import {
  HOST_LENGTH,
  HOST_NAME,
  HOST_PATTERN,
  ICMP_TYPE,
  PORT_LENGTH,
  PORT_OR_NAME,
  PROTOCOL,
  SERVER_NAME,
} from './patterns.ts';
import { list, map, open, type Schema, text, whole } from './schema.ts';

/** Ports of one item, and ICMP types. */
const MOST_PORTS = 40;
const LAST_PORT = 65_535;
const LAST_TYPE = 255;

const name = (description: string): Schema => text(description, { minLength: 1 });

const secret = open({ namespace: text('Namespace of the secret.'), name: name('Name of the secret.') }, 'A Secret.', {
  required: ['name'],
});

const tls = (description: string): Schema =>
  open(
    {
      secret,
      trustedCA: text('Item of the secret with the trusted authorities. Default ca.crt.'),
      certificate: text('Item of the secret with the certificate. Default tls.crt.'),
      privateKey: text('Item of the secret with the private key. Default tls.key.'),
    },
    description,
    { required: ['secret'] },
  );

const portProtocol = open(
  {
    port: text('A decimal number 0..65535 (0: every port), or the name of a port. None for a protocol without ports.', {
      pattern: PORT_OR_NAME,
      maxLength: PORT_LENGTH,
    }),
    endPort: whole('Last port of a range that begins at port, which is a number then.', {
      minimum: 0,
      maximum: LAST_PORT,
    }),
    protocol: text(
      'TCP, UDP, SCTP or ANY; without ports: VRRP, IGMP, GRE, IPIP, IPv6, ESP, AH. Default ANY: TCP, UDP and SCTP.',
      { pattern: PROTOCOL },
    ),
  },
  undefined,
  {
    // A range that begins at a name.
    not: { required: ['port', 'endPort'], properties: { port: { pattern: '[A-Za-z]' }, endPort: { minimum: 1 } } },
  },
);

const httpRule = open({
  path: text('Regular expression that the whole path must match.'),
  method: text('Regular expression that the whole method must match.'),
  host: text('Regular expression that the whole host must match.'),
  headers: list(text(), 'Headers that must be there, as "Name: value" or "Name".'),
  headerMatches: list(
    open(
      {
        name: name('Header name.'),
        value: text('Value that the header must have.'),
        secret,
        mismatch: text('What to do when it differs: LOG, ADD, DELETE or REPLACE.', {
          enum: ['', 'LOG', 'ADD', 'DELETE', 'REPLACE'],
        }),
      },
      undefined,
      { required: ['name'] },
    ),
    'Header requirements.',
  ),
});

/** That it has one of both names is left to the operator, whose message names a misspelt one. */
export const fqdn: Schema = open({
  matchName: text('A full domain name.', { pattern: HOST_NAME, maxLength: HOST_LENGTH }),
  matchPattern: text('A domain name in which * stands for any letters of one label.', {
    pattern: HOST_PATTERN,
    maxLength: HOST_LENGTH,
  }),
});

const l7 = {
  rules: open(
    {
      http: list(httpRule, 'HTTP requests that are allowed.'),
      dns: list(fqdn, 'DNS names that may be looked up (egress).'),
      kafka: list(open({}), 'Kafka requests that are allowed.'),
      l7proto: text('Name of another application protocol.'),
      l7: list(map(text()), 'Rules of that protocol.'),
    },
    'What is allowed inside the connection; at most one kind.',
  ),
  terminatingTLS: tls('How to end TLS from the client.'),
  originatingTLS: tls('How to begin TLS to the server.'),
  serverNames: list(text(undefined, { pattern: SERVER_NAME }), 'TLS server names that are allowed.'),
  listener: open(
    {
      envoyConfig: open(
        {
          kind: text('Kind of the configuration.', {
            enum: ['', 'CiliumEnvoyConfig', 'CiliumClusterwideEnvoyConfig'],
          }),
          name: name('Its name.'),
        },
        'Envoy configuration.',
        { required: ['name'] },
      ),
      name: name('Listener in that configuration.'),
      priority: whole('Rank among listeners, 1..100.', { minimum: 0, maximum: 100 }),
    },
    'Envoy listener that gets the traffic.',
    { required: ['envoyConfig', 'name'] },
  ),
};

export const portRule = (deny: boolean): Schema =>
  open({
    ports: list(portProtocol, 'At most 40 ports. An empty list matches no port.', { maxItems: MOST_PORTS }),
    ...(deny ? {} : l7),
  });

export const icmpRule: Schema = open({
  fields: list(
    open(
      {
        family: text('IPv4 (default) or IPv6.', { enum: ['', 'IPv4', 'IPv6'] }),
        type: {
          'x-kubernetes-int-or-string': true,
          description: 'ICMP type as a number 0..255 or by its name: EchoRequest.',
          minimum: 0,
          maximum: LAST_TYPE,
          pattern: ICMP_TYPE,
        },
      },
      undefined,
      { required: ['type'] },
    ),
    'At most 40 types.',
    { maxItems: MOST_PORTS },
  ),
});

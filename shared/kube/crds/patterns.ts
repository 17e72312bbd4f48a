/**
 * What texts of a policy look like. A text that does not is one that the operator refuses, too (`test/policy-schema.test.ts`); what only a parser can
 * see (an exception outside of its CIDR) is left to it. Regular expressions of RE2, as API servers have them.
 */

const OCTET = '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
const V4 = `(${OCTET}\\.){3}${OCTET}`;
/** The operator reads them to the end. */
const V6 = '[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*';
const V4_BITS = '/(3[0-2]|[12]?[0-9])';
const V6_BITS = '/(12[0-8]|1[01][0-9]|[1-9]?[0-9])';

/** A prefix, or an address alone. */
export const CIDR_OR_ADDRESS = `^(${V4}(${V4_BITS})?|${V6}(${V6_BITS})?)$`;
export const CIDR = `^(${V4}${V4_BITS}|${V6}${V6_BITS})$`;
/** The same; empty: none. */
export const CIDR_OR_NONE = `^(${V4}${V4_BITS}|${V6}${V6_BITS})?$`;

const PORT = '0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]';
/** RFC 6335: letters, digits and single hyphens, with a letter among them. */
const PORT_NAME = '([0-9]+-)*[0-9]*[A-Za-z][0-9A-Za-z]*(-[0-9A-Za-z]+)*';
/** A number without leading zeros, a name, or none. */
export const PORT_OR_NAME = `^(${PORT}|${PORT_NAME})?$`;
/** Of a name of a port. */
export const PORT_LENGTH = 15;

const PROTOCOLS = ['TCP', 'UDP', 'SCTP', 'ANY', 'IGMP', 'IPIP', 'IPV6', 'GRE', 'ESP', 'AH', 'VRRP'];
/** Letter by letter: a group that ignores case, `(?i:...)`, misses words in some engines. */
const inAnyCase = (word: string): string => word.replace(/[A-Z]/g, (letter) => `[${letter}${letter.toLowerCase()}]`);
/** In any case; empty: ANY. */
export const PROTOCOL = `^(${PROTOCOLS.map(inAnyCase).join('|')})?$`;

/** A number 0..255 without leading zeros, or a name such as EchoRequest. */
export const ICMP_TYPE = '^([1-9]?[0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]|[A-Z][0-9A-Za-z]*)$';

/** Of a label; it may be empty. */
export const LABEL_VALUE = '^([0-9A-Za-z]([-_.0-9A-Za-z]*[0-9A-Za-z])?)?$';
export const LABEL_VALUE_LENGTH = 63;

/** ASCII that can be printed. */
export const PRINTABLE = '^[ -~]*$';

/** Of hosts; empty: none. */
export const HOST_NAME = '^[-a-zA-Z0-9_.]*$';
export const HOST_PATTERN = '^[-a-zA-Z0-9_.*]*$';
export const HOST_LENGTH = 255;
/** Of TLS: a host name, below one wildcard at most. */
export const SERVER_NAME = '^([*]{1,2}[.])?[-a-zA-Z0-9_]+([.][-a-zA-Z0-9_]+)*[.]?$';

/** A name of a CiliumCIDRGroup; empty: none. */
export const GROUP_NAME = '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$';
export const GROUP_NAME_LENGTH = 253;

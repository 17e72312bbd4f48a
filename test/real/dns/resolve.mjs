/** Prints the IPv4 addresses of a name: `lookup`, as the C library finds them; `resolve`, as Node's own resolver does. */
import dns from 'node:dns/promises';

const [how, name] = process.argv.slice(2);
const addresses =
  how === 'lookup'
    ? (await dns.lookup(name, { family: 4, all: true })).map(({ address }) => address)
    : await dns.resolve4(name);
for (const address of addresses) console.log(address);

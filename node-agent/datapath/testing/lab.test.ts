import { afterEach, expect, test } from '@jest/globals';
import { Lab } from './lab.ts';

let lab: Lab | undefined;
afterEach(() => lab?.close());

test('Pods of a lab talk by both families.', async () => {
  lab = new Lab();
  const client = await lab.pod('c');
  const server = await lab.pod('s');
  for (const address of [server.address, server.address6]) {
    expect(await client.reaches(server, () => 0n, address)).toBe(true);
    expect(await client.talk(address, 7777)).toBe('answered');
    expect(await client.dial(server, address)).toBe(true);
    await client.say(server, address);
  }
  for (const address of [client.address, client.address6]) await server.say(client, address);
  await client.write(server, server.address6);
  await server.answer();
});

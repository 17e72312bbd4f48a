import { Server } from 'node:net';
import { expect, it, jest } from '@jest/globals';
import { Registry } from 'prom-client';
import { HealthServer } from './health.ts';

it('a connection that cannot be accepted is told, each time, and ends nothing', async () => {
  const told: unknown[] = [];
  const health = new HealthServer({
    address: '127.0.0.1:0',
    registry: () => new Registry(),
    unhealthy: () => undefined,
    unready: () => undefined,
    onError: (error) => told.push(error),
  });
  // Which server it is shows where it begins to listen: too many open files, say, are the machine's, and cannot be had here.
  const listen = jest.spyOn(Server.prototype, 'listen');
  const port = await health.start();
  const [inner] = listen.mock.contexts;
  listen.mockRestore();
  try {
    const refused = new Error('accept EMFILE');
    for (let time = 0; time < 2; time += 1) (inner as Server).emit('error', refused);
    expect(told).toEqual([refused, refused]);
    expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200);
  } finally {
    await health.stop();
  }
});

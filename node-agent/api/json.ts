import type { FastifyReply } from 'fastify';

/** Sends plain JSON of any type (a bare string too). */
export function sendJson(reply: FastifyReply, status: number, body: unknown): FastifyReply {
  return reply.code(status).type('application/json; charset=utf-8').send(JSON.stringify(body));
}

import type { FastifyReply } from 'fastify';

/** Sends plain JSON of any type (a bare string too). */
export function sendJson(reply: FastifyReply, status: number, body: unknown): FastifyReply {
  return sendText(reply, status, JSON.stringify(body));
}

/** Sends what is JSON already. */
export function sendText(reply: FastifyReply, status: number, json: string): FastifyReply {
  return reply.code(status).type('application/json; charset=utf-8').send(json);
}

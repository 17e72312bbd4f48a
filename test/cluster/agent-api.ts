/** One request over an agent's unix socket. */
import { request } from 'node:http';

export interface AgentReply {
  readonly status: number;
  readonly body: unknown;
}

export function callAgent(
  node: { readonly name: string; readonly socket: string },
  method: string,
  path: string,
  body?: unknown,
): Promise<AgentReply> {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const headers =
      text === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    const req = request({ socketPath: node.socket, method, path, headers, timeout: 60_000 }, (response) => {
      let answer = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        answer += chunk;
      });
      response.on('error', reject);
      response.on('end', () => {
        try {
          resolve({ status: response.statusCode ?? 0, body: answer === '' ? undefined : JSON.parse(answer) });
        } catch (error) {
          reject(error instanceof Error ? error : new Error(String(error)));
        }
      });
    });
    req.on('timeout', () => req.destroy(new Error(`${method} ${path}: no answer from ${node.name} within 60 s`)));
    req.on('error', reject);
    req.end(text);
  });
}

import { request as httpRequest } from 'node:http';

/** One request over a unix socket; the body of the answer parsed when it is JSON. `requestId`: header `x-request-id`. */
export function call(
  socketPath: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<{ readonly status: number; readonly body: unknown; readonly text: string; readonly requestId?: unknown }> {
  return new Promise((resolve, reject) => {
    const payload = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
    const request = httpRequest(
      {
        socketPath,
        method,
        path: `/v1${path}`,
        agent: false,
        headers:
          payload === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) },
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => {
          resolve({
            status: response.statusCode ?? 0,
            body: text === '' ? undefined : JSON.parse(text),
            text,
            requestId: response.headers['x-request-id'],
          });
        });
      },
    );
    request.on('error', reject);
    request.end(payload);
  });
}

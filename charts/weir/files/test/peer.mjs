// One pod of helm test. It accepts connections on two ports, and on a third it is told to connect somewhere:
// GET /connect?host=ADDRESS&port=PORT answers connected, timeout, or the code of the error.
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer } from 'node:net';

const {
  WEIR_TEST_LISTEN: address = '0.0.0.0',
  WEIR_TEST_PORTS = '8080,8081',
  WEIR_TEST_CONTROL = '8090',
} = process.env;
const CONNECT_TIMEOUT_MS = 1_000;

for (const port of WEIR_TEST_PORTS.split(',')) {
  createServer((socket) => socket.on('error', () => {}).end('weir\n')).listen(Number(port), address);
}

createHttpServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://peer');
  const host = searchParams.get('host');
  const port = Number(searchParams.get('port'));
  if (pathname !== '/connect' || host === null || !(port > 0)) {
    response.writeHead(404).end('GET /connect?host=ADDRESS&port=PORT\n');
    return;
  }
  const socket = connect({ host, port });
  const answer = (text) => {
    clearTimeout(timer);
    socket.destroy();
    if (!response.writableEnded) response.end(text);
  };
  const timer = setTimeout(() => answer('timeout'), CONNECT_TIMEOUT_MS);
  socket.once('connect', () => answer('connected'));
  socket.once('error', (error) => answer(error.code ?? error.message));
}).listen(Number(WEIR_TEST_CONTROL), address);

// Process 1 of a container has no default for this signal.
process.once('SIGTERM', () => process.exit(0));

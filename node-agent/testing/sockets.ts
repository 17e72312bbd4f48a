/** TCP in network namespaces of tests. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { runCommand } from '../host/command.ts';

/** An address that answers one byte on a port, in a namespace. Who had the port before, and was killed, may have it for a moment yet. */
export async function listen(netns: string, port: number): Promise<ChildProcess> {
  const script = `
    const server = require('net').createServer((s) => s.end('x')).on('listening', () => console.log('up'));
    const listen = () => server.listen(${port});
    server.on('error', (error) => { if (error.code !== 'EADDRINUSE') throw error; setTimeout(listen, 10); });
    listen();`;
  const child = spawn('nsenter', [`--net=${netns}`, process.execPath, '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  return child;
}

/** The source address that a connection from the namespace has; rejects when it cannot be made. */
export async function connectFrom(netns: string, address: string, port: number): Promise<string> {
  const script = `const s=require('net').connect(${port},'${address}',()=>{console.log(s.localAddress);s.end()});s.setTimeout(60000,()=>process.exit(1));s.on('error',()=>process.exit(1))`;
  return (await runCommand('nsenter', [`--net=${netns}`, process.execPath, '-e', script])).trim();
}

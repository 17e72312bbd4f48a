/** TCP in network namespaces of tests. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { runCommand } from '../host/command.ts';

/** An address that answers one byte on a port, in a namespace. */
export async function listen(netns: string, port: number): Promise<ChildProcess> {
  const script = `require('net').createServer((s)=>s.end('x')).listen(${port},()=>console.log('up'))`;
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

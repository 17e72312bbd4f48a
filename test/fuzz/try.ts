import fc from 'fast-check';
import { baseline, play } from './run.ts';
import { hostileObjects } from './hostile.ts';
const t=Date.now();
const base = await baseline();
console.log('baseline', Date.now()-t, base.begun.size);
if (process.env.SHOW) console.log([...base.begun.values()].map(e=>e.key+' '+JSON.stringify(e.value)).join('\n'));
for (const author of (process.env.AUTHORS??'tenant,node,stranger').split(',') as any[]) {
  const t=Date.now();
  const [list = []] = fc.sample(hostileObjects(author,{min:Number(process.env.N??40),max:Number(process.env.N??40)}),{numRuns:1,seed:Number(process.env.SEED??1)});
  console.log(author, list.length, await play(author, list, base), Date.now()-t);
}

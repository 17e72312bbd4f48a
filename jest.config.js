import { availableParallelism } from 'node:os';
import { projectOf, testFiles } from './test/projects/list.ts';

/** Tests run on Node's own TypeScript support: no transformer, no build step. */
export const project = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  modulePathIgnorePatterns: ['<rootDir>/.cache/'],
};

/** For all projects. */
export const base = {
  // Three on two cores, too: much of the time goes into waiting for packets that must not come.
  maxWorkers: Math.max(3, availableParallelism() - 1),
  // Tests wait for conditions, never for times: this only ends one that waits for ever. With both cores busy the longest take a minute.
  testTimeout: 240_000,
};

const files = testFiles();
const named = (name) => ({
  ...project,
  displayName: name,
  testEnvironment: '<rootDir>/test/projects/environment.ts',
  testMatch: files.filter((file) => projectOf(file) === name).map((file) => `<rootDir>/${file}`),
});

/** A real Kubernetes: npm run test:real. */
export default {
  ...base,
  projects: [
    named('unit'),
    ...['kernel', 'cluster', 'release'].map((name) => ({ ...named(name), globalSetup: '<rootDir>/test/leftovers.ts' })),
  ],
};

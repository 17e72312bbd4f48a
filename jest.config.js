import { availableParallelism } from 'node:os';

/** Tests run on Node's own TypeScript support: no transformer, no build step. */
export default {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  testMatch: ['**/*.test.ts'],
  // A real Kubernetes: npm run test:real.
  testPathIgnorePatterns: ['/node_modules/', '<rootDir>/test/real/', '<rootDir>/test/cluster/real/'],
  modulePathIgnorePatterns: ['<rootDir>/.cache/'],
  // On two cores, too: much of the time goes into waiting for packets that must not come.
  maxWorkers: Math.max(2, availableParallelism() - 1),
  // Tests wait for conditions, never for times: this only ends one that waits for ever. With both cores busy the longest take a minute.
  testTimeout: 240_000,
  globalSetup: '<rootDir>/test/leftovers.ts',
};

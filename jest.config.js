/** Tests run on Node's own TypeScript support: no transformer, no build step. */
export default {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  testMatch: ['**/*.test.ts'],
  modulePathIgnorePatterns: ['<rootDir>/.cache/'],
  testTimeout: 30_000,
  globalSetup: '<rootDir>/test/leftovers.ts',
};

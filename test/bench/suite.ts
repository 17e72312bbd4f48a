import type { Figure } from './report.ts';

/** A benchmark: yields figures as they are measured, and leaves nothing behind. */
export type Suite = () => AsyncGenerator<Figure>;

// Totals in TypeScript: how many messages of a key and window there are, and the sum of one of their fields.

import { aggregator, type Aggregate } from "weir-udf";

interface Config {
  /** The field to sum up: whole numbers. */
  field?: string;
}

interface Total {
  count: number;
  sum: number;
}

function build({ field }: Config): Aggregate<Total> {
  if (!field) throw new Error("config: field: name the field to sum up");
  return {
    empty: () => ({ count: 0, sum: 0 }),
    add(total, message) {
      const fields = message.json();
      if (fields === null || typeof fields !== "object" || Array.isArray(fields)) throw new Error("not a JSON object");
      if (!Number.isSafeInteger(fields[field])) throw new Error(`${field}: expected a whole number`);
      total.count++;
      total.sum += fields[field];
    },
    encode: ({ count, sum }) => `${count} ${sum}`,
    decode(bytes) {
      const [count, sum] = new TextDecoder().decode(bytes).split(" ").map(Number);
      return { count, sum };
    },
    merge(total, other) {
      total.count += other.count;
      total.sum += other.sum;
    },
    emit: (_, { count, sum }, out) => out.json({ count, sum }),
  };
}

export const { configure, accumulate, merge, emit, stateVersion, migrate } = aggregator(build);

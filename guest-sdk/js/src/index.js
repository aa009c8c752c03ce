// Makes the exports of a module from what an author writes: see index.d.ts, which documents all of it.

import { ABSENT, columnOf, get, NO_ROWS } from "./columns.js";
import { Emitter } from "./emitter.js";
import { Message } from "./message.js";

export const VERSION = "1.1.0";
export { get };

const ROUTES_MAX = 254;

/** Reads a step's config; a step without one has an empty one. */
function read(config) {
  return JSON.parse(config.trim() || "null") ?? {};
}

/** Runs an author's function for the host: its errors are texts, anything else would end the instance. */
function answer(run) {
  try {
    return run();
  } catch (error) {
    throw reason(error);
  }
}

function reason(error) {
  if (error instanceof Error) return error.name === "Error" ? error.message : `${error.name}: ${error.message}`;
  return String(error);
}

function routesOf(built) {
  const routes = built.routes ?? [];
  if (routes.length > ROUTES_MAX) throw new Error(`the module names ${routes.length} routes: at most ${ROUTES_MAX} are possible`);
  return routes;
}

export function transformer(create) {
  let built, emitter;
  const message = new Message();
  return {
    configure: (config) =>
      answer(() => {
        built = create(read(config));
        const routes = routesOf(built);
        emitter = new Emitter(message, routes);
        return routes;
      }),
    transform(batch) {
      if (built === undefined) throw "transform was called before configure";
      if (built.transformBatch !== undefined) return answer(() => built.transformBatch(batch));
      message.start(batch);
      emitter.start(batch);
      const rows = batch.eventTimes.length;
      const attributes = batch.attributes.rows.length !== 0;
      for (let row = 0; row < rows; row++) {
        if (attributes) message.move(row);
        else message.row = row;
        try {
          built.transform(message, emitter);
        } catch (error) {
          emitter.reject(reason(error));
        }
      }
      return emitter.output();
    },
  };
}

export function aggregator(create) {
  let built, emitter;
  const message = new Message();
  const version = () => built.stateVersion ?? 1;
  return {
    configure: (config) =>
      answer(() => {
        built = create(read(config));
        const routes = routesOf(built);
        emitter = new Emitter(message, routes);
        return routes;
      }),

    accumulate(batch, groups) {
      message.start(batch);
      const fragments = [];
      const refused = new Map();
      let at = 0;
      for (const end of groups.ends) {
        let state = built.empty();
        let taken = false;
        for (; at < end; at++) {
          message.move(groups.rows[at]);
          try {
            state = built.add(state, message) ?? state;
            taken = true;
          } catch (error) {
            refused.set(groups.rows[at], reason(error));
          }
        }
        fragments.push(taken ? built.encode(state) : null);
      }
      // Groups come in any order, rejected rows go back in theirs.
      const rows = Uint32Array.from(refused.keys()).sort();
      const reasons = Array.from(rows, (row) => refused.get(row));
      return { fragments: columnOf(fragments), rejected: { rows, reasons: columnOf(reasons) } };
    },

    merge: (lists) =>
      answer(() => {
        const fragments = [];
        let at = 0;
        for (const end of lists.ends) {
          let state = built.decode(get(lists.fragments, at++));
          for (; at < end; at++) state = built.merge(state, built.decode(get(lists.fragments, at))) ?? state;
          fragments.push(built.encode(state));
        }
        return columnOf(fragments);
      }),

    emit(panes) {
      const eventTimes = panes.ends.map((end) => end - 1n);
      const batch = {
        keys: panes.keys, values: ABSENT, eventTimes, receivedMs: panes.receivedMs,
        attributes: { rows: NO_ROWS, names: ABSENT, values: ABSENT },
      };
      message.start(batch);
      emitter.start(batch);
      for (let row = 0; row < eventTimes.length; row++) {
        message.move(row);
        try {
          built.emit(pane(panes, row), built.decode(get(panes.accumulators, row)), emitter);
        } catch (error) {
          emitter.reject(reason(error));
        }
      }
      return emitter.output();
    },

    stateVersion: version,

    migrate: (from, accumulators) =>
      answer(() => {
        if (built.migrate === undefined) throw new Error(`accumulators of version ${from} cannot be read: the module writes version ${version()}`);
        const fragments = [];
        for (let row = 0; row < accumulators.ends.length; row++) fragments.push(built.migrate(from, get(accumulators, row)));
        return columnOf(fragments);
      }),
  };
}

const TIMINGS = ["early", "on time", "late"];

function pane(panes, row) {
  return {
    key: get(panes.keys, row), start: Number(panes.starts[row]), end: Number(panes.ends[row]),
    firings: panes.firings[row], timing: TIMINGS[panes.timings[row]], received: Number(panes.receivedMs),
  };
}

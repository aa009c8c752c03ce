// Orders in JavaScript: checks orders, masks e-mail addresses, and tells large orders from small ones.

import { transformer } from "weir-udf";

const whole = Number.isSafeInteger;

function fail(reason) {
  throw new Error(reason);
}

export const { configure, transform } = transformer(({ large_from: largeFrom = 10_000, ...unknown }) => {
  for (const name in unknown) fail(`config: ${name}: no such setting`);
  if (!whole(largeFrom) || largeFrom < 1) fail("config: large_from: expected a whole number of at least 1");

  return {
    routes: ["large"],

    transform(message, out) {
      const text = message.text();
      if (text === null) return out.forward();
      const { id, deleted, email, amount, ts, note } = parse(text);
      if (!whole(id)) fail("id: expected a whole number");
      if (deleted != null && typeof deleted !== "boolean") fail("deleted: expected true or false");
      if (deleted) return out.emit(null, { key: String(id) });
      const at = typeof email === "string" ? email.indexOf("@") : -1;
      if (at < 1) fail("email: expected an address");
      if (!whole(amount) || amount < 0) fail("amount: expected a whole number of cents");
      if (ts != null && !whole(ts)) fail("ts: expected milliseconds");
      if (note != null && typeof note !== "string") fail("note: expected a text");
      const size = amount >= largeFrom ? "large" : "small";
      const first = String.fromCodePoint(email.codePointAt(0));
      const checked = { id, email: first + "***" + email.slice(at), amount, size, note: note ?? "" };
      const route = size === "large" ? "large" : undefined;
      out.json(checked, { key: String(id), eventTime: ts ?? undefined, add: { size }, route });
    },
  };
});

function parse(text) {
  let order = null;
  try {
    order = JSON.parse(text);
  } catch {}
  if (order === null || typeof order !== "object" || Array.isArray(order)) fail("not a JSON object");
  return order;
}

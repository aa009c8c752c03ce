// Orders in JavaScript: checks orders, masks e-mail addresses, and tells large orders from small ones.

import { transformer } from "weir-udf";

const whole = Number.isSafeInteger;

function check(holds, reason) {
  if (!holds) throw new Error(reason);
}

export const { configure, transform } = transformer(({ large_from: largeFrom = 10_000, ...unknown }) => {
  for (const name in unknown) throw new Error(`config: ${name}: no such setting`);
  check(whole(largeFrom) && largeFrom >= 1, "config: large_from: expected a whole number of at least 1");

  return {
    routes: ["large"],

    transform(message, out) {
      const text = message.text();
      if (text === null) return out.forward();
      const order = parse(text);
      check(whole(order.id), "id: expected a whole number");
      const key = String(order.id);
      const { deleted, email, amount, ts, note } = order;
      check(deleted == null || typeof deleted === "boolean", "deleted: expected true or false");
      if (deleted) return out.emit(null, { key });
      const at = typeof email === "string" ? email.indexOf("@") : -1;
      check(at >= 1, "email: expected an address");
      check(whole(amount) && amount >= 0, "amount: expected a whole number of cents");
      check(ts == null || whole(ts), "ts: expected milliseconds");
      check(note == null || typeof note === "string", "note: expected a text");
      const size = amount >= largeFrom ? "large" : "small";
      const first = String.fromCodePoint(email.codePointAt(0));
      const checked = { id: order.id, email: first + "***" + email.slice(at), amount, size, note: note ?? "" };
      const route = size === "large" ? "large" : undefined;
      out.json(checked, { key, eventTime: ts ?? undefined, add: { size }, route });
    },
  };
});

function parse(text) {
  let order;
  try {
    order = JSON.parse(text);
  } catch {
    order = null;
  }
  check(order !== null && typeof order === "object" && !Array.isArray(order), "not a JSON object");
  return order;
}

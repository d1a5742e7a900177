// The limit of undici: it signs and posts, and does nothing else.
import * as wire from "./wire.mjs";

async function work() {
  const all = wire.jobs();
  const send = wire.sender();
  let next = 0;
  const one = async () => {
    while (next < all.length) await send(all[next++]);
  };
  wire.ready();
  await Promise.all(Array.from({ length: wire.CONNECTIONS }, one));
}

wire.main({ work });

// Looks for the token in everything that JavaScript can reach: names and values of every object, from globalThis on.
const WANTED = { token: "@TOKEN_SHA256@", planted: "@PLANTED_SHA256@" };
globalThis.notes = { deep: ["x", { planted: "@PLANTED@" }] };
@SHA256@
const pattern = new RegExp("@PREFIX_A@" + "@PREFIX_B@" + "[0-9a-f]{32}", "g");
const seen = new Set();
const found = new Set();
let objects = 0;
let texts = 0;
function text(value) {
  texts += 1;
  for (const hit of value.match(pattern) || []) found.add(sha256(hit));
}
const queue = [globalThis];
while (queue.length > 0 && objects < 200000) {
  const value = queue.pop();
  if (seen.has(value)) continue;
  seen.add(value);
  objects += 1;
  if (typeof value === "function") text(Function.prototype.toString.call(value));
  for (const name of Reflect.ownKeys(value)) {
    if (typeof name === "string") text(name);
    let inner;
    try { inner = value[name]; } catch { continue; }
    if (inner instanceof Promise) inner.catch(() => {});
    if (typeof inner === "string") text(inner);
    else if (inner !== null && (typeof inner === "object" || typeof inner === "function")) queue.push(inner);
  }
  const above = Object.getPrototypeOf(value);
  if (above !== null) queue.push(above);
}
const absent = ["process", "require", "Deno", "Bun", "std", "os", "WebAssembly", "Worker"];
console.log("searched", objects, "objects and", texts, "texts from globalThis on");
console.log("not there at all:", absent.filter((name) => typeof globalThis[name] === "undefined").join(", "));
console.log("planted value found:", found.has(WANTED.planted));
console.log("token found:", found.has(WANTED.token));

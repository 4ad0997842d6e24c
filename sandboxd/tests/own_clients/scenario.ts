// What each client of freeboard.v1 must do, against a live daemon. Prints `ok` and a word for each.
import assert from "node:assert/strict";
import { Client, Failed, Refused, check, type Run } from "./freeboard.js";

const url = process.env.URL!;
const client = new Client(url, process.env.TOKEN!);
const refused = (reason: string, call: () => Promise<unknown>) =>
  assert.rejects(call, (error) => error instanceof Refused && error.reason === reason);

const program = { python: "import os,sys; sys.stdout.write(os.environ['A']); sys.exit(3)" };
const options = { environment: { A: "b" }, minimumIsolation: "container", key: "one" };
const first = await client.run(program, options);
assert.equal(first.result!.steps[0].stdout.toString(), "b");
assert.deepEqual([first.result!.steps[0].exitCode, first.executed], [3, "yes"]);
console.log("ok result");
assert.deepEqual(await client.run(program, options), first);
assert.deepEqual(await client.get({ idempotencyKey: "one" }), first);
console.log("ok key");
const content = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
const copied = await client.run({ shell: "cp in.bin out.bin" }, { files: { "in.bin": content }, artifacts: ["out.bin"] });
assert.deepEqual(copied.result!.artifacts, [{ path: "out.bin", content }]);
console.log("ok files");
await refused("isolation", () => client.run({ shell: "true" }, { minimumIsolation: "kernel" }));
await refused("request", () => client.get({ run: "0".repeat(32) }));
await refused("permission", () => new Client(url, "wrong").list());
console.log("ok refused");
const hello = await client.start({ command: ["printf", "hello"] });
let text = "";
for await (const piece of client.follow(hello.run.run)) text += piece.data.toString();
assert.equal(text, "hello");
console.log("ok follow");
const sleeping = (await client.start({ command: ["sleep", "600"] })).run;
assert((await client.list()).some((run) => run.run === sleeping.run));
assert.equal((await client.cancel(sleeping.run)).ending, "cancelled");
console.log("ok cancel");
const [standing] = (await client.limits()).callers;
assert.deepEqual([standing.caller, standing.running, standing.maxConcurrent > 0], ["alice", 0, true]);
const administrator = new Client(url, process.env.ADMIN!);
const everybody = await administrator.limits(true);
assert(everybody.callers.some((one) => one.caller === "alice") && everybody.daemon!.maxConcurrent > 0);
assert((await administrator.list("ended", true)).some((run) => run.run === sleeping.run && run.caller === "alice"));
await refused("permission", () => client.limits(true));
await refused("permission", () => client.list(undefined, true));
await refused("unsupported", () => client.grants(["none"]));
console.log("ok callers");
const cat = (await client.start({ command: ["cat"] }, { stdin: "one ", stdinOpen: true, limits: { outputBytes: 8 } })).run;
assert.equal(await client.write(cat.run, 4, "two "), 8);
assert.equal(await client.write(cat.run, 4, Buffer.from("two three"), true), 13);
for await (const _ of client.follow(cat.run));
const fed = await client.get({ run: cat.run });
assert.deepEqual([fed.result!.steps[0].stdout.toString(), fed.result!.stdin!.bytes], ["one two ", 13]);
await refused("unsupported", () => client.run({ shell: "true" }, { limits: { memoryMib: 1 << 20 } }));
console.log("ok stdin");
const { run, sent } = await client.start({ shell: "echo x" }, { wait: 20 });
const changes: ((run: Run) => void)[] = [
  (run) => (run.result!.steps[0].stdout = Buffer.from("y")),
  (run) => (run.record!.isolation = "vm"),
  (run) => (run.record!.run = "other"),
  (run) => delete run.record,
  (run) => (run.result!.requests = { allowed: 1, denied: 0, failed: 0, shed: 0 }),
  (run) => (run.result!.stdin = { bytes: 0, sha256: "" }),
];
for (const change of changes) {
  const changed = structuredClone(run);
  for (const step of changed.result!.steps) {
    step.stdout = Buffer.from(step.stdout);
    step.stderr = Buffer.from(step.stderr);
  }
  change(changed);
  assert.throws(() => check(changed, sent), Failed);
}
assert.throws(() => check(run, sent + " "), Failed);
assert.equal(check(run, sent), run);
console.log("ok tampering");
assert.throws(() => new Client("http://example.test", "x"), TypeError);
console.log("ok url");

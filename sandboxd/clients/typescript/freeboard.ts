/**
 * Runs programs behind a measured boundary, through sandboxd's freeboard.v1. Node 18 and later, no dependencies.
 *
 *     const client = new Client("http://127.0.0.1:8746", token);
 *     const run = await client.run({ python: "print(6*7)" }, { minimumIsolation: "container", grants: ["triage"] });
 *     console.log(run.result!.steps[0].stdout.toString());
 *
 * An answer counts only when it is bound to its request by the request id, when its record is that of what was sent and what
 * came back, and when the measured tier is at least the one asked for.
 */
import { createHash, randomBytes } from "node:crypto";

export const TIERS = ["process", "container", "kernel", "vm"];
/** An exchange waits this long at most; longer waits are several exchanges. */
const LONGEST_WAIT_MS = 30_000;
const TRIES = 5;
/** Standard input in one message. */
const MAX_STDIN_BYTES = 1 << 20;

export type Program =
  | { javascript: string }
  | { python: string }
  | { shell: string }
  | { command: string[] }
  | { steps: string[] };

export interface Options {
  files?: Record<string, Uint8Array | string>;
  artifacts?: string[];
  environment?: Record<string, string>;
  grants?: string[];
  minimumIsolation?: string;
  timeoutMs?: number;
  /** What the run must not have more of; above the daemon's own it is refused. */
  limits?: { timeMs?: number; memoryMib?: number; pids?: number; outputBytes?: number };
  /** Standard input from the start. */
  stdin?: Uint8Array | string;
  /** More of it follows, with `write`. */
  stdinOpen?: boolean;
  queueMs?: number;
  priority?: "low" | "normal" | "high";
  traceId?: string;
  /** Seconds that the exchange waits for the end of the run. */
  wait?: number;
  /** The same call with the same key is one run. */
  key?: string;
}

export interface Step {
  command: string;
  exitCode: number;
  stdout: Buffer;
  stderr: Buffer;
  stdoutTruncated: boolean;
  stderrTruncated: boolean;
  timedOut: boolean;
  durationMs: number;
}

export interface RunResult {
  steps: Step[];
  detail: string;
  artifacts: { path: string; content: Buffer }[];
  artifactsTruncated: boolean;
  evidence: { name: string; value: string; met: boolean }[];
  requests?: { allowed: number; denied: number; failed: number; shed: number };
  refused?: { verdict: string; method: string; host: string; path: string; reason: string }[];
  stdin?: { bytes: number; sha256: string };
  durationMs: number;
}

export interface RunRecord {
  version: number;
  run: string;
  requestSha256: string;
  resultSha256: string;
  provider: string;
  isolation: string;
  environment: string;
  policy: string;
  startedUnixMs: number;
  endedUnixMs: number;
  recordSha256: string;
}

export interface Run {
  run: string;
  state: "queued" | "running" | "ended";
  executed: "no" | "yes" | "unknown";
  createdUnixMs: number;
  /** Whose it is, where it is somebody else's. */
  caller?: string;
  ending?: string;
  refusal?: { code: string; reason: string; message: string };
  result?: RunResult;
  record?: RunRecord;
  /** A DSSE envelope, for `sandboxd attest verify` or another verifier. */
  attestation?: { payloadType: string; payload: string; signatures: { keyid: string; sig: string }[] };
}

/** Places, and how many of them are taken. Of `ratePerMinute` and `maxSessions`, 0 is no limit. */
export interface Standing {
  maxConcurrent: number;
  running: number;
  waiting: number;
  ratePerMinute: number;
  maxSessions: number;
}

export interface CallerLimits extends Standing {
  caller: string;
  scopes: string[];
}

/** What one grant opens; an empty floor is any. */
export interface GrantSurface {
  grant: string;
  floor: string;
  apis: { api: string; baseUrl: string; routes: string[] }[];
}

/** Nothing ran. `reason` is one of request, permission, protocol, unsupported, isolation, environment, capacity. */
export class Refused extends Error {
  constructor(readonly code: string, readonly reason: string, message: string) {
    super(`${code}: ${message} (nothing ran: ${reason})`);
  }
}

/** No result, and code may have run. */
export class Failed extends Error {
  constructor(message: string, readonly run?: Run) {
    super(`${message} (code may have run)`);
  }
}

export class Client {
  private readonly base: string;

  constructor(url: string, private readonly token: string, private readonly timeoutMs = 60_000) {
    const parsed = new URL(url);
    const loopback = ["127.0.0.1", "[::1]", "localhost"].includes(parsed.hostname);
    if (parsed.protocol !== "https:" && !(parsed.protocol === "http:" && loopback)) {
      throw new TypeError("the URL is https, or http to this host");
    }
    this.base = parsed.origin;
  }

  /** Starts a run, or finds the one that the same call with the same key started. */
  async start(program: Program, options: Options = {}): Promise<{ run: Run; sent: string }> {
    const { files = {}, environment = {}, key, wait = 0, stdin, stdinOpen, ...rest } = options;
    const input = stdin === undefined && !stdinOpen ? {} : { stdin: { data: Buffer.from(stdin ?? "").toString("base64"), open: stdinOpen } };
    const sent = JSON.stringify({
      program,
      ...rest,
      ...input,
      files: Object.entries(files).map(([path, content]) => ({ path, content: Buffer.from(content).toString("base64") })),
      environment: Object.entries(environment).map(([name, value]) => ({ name, value })),
    });
    const headers = { Prefer: `wait=${wait}`, ...(key === undefined ? {} : { "Idempotency-Key": key }) };
    return { run: bytesOf(await this.call("Start", sent, headers)), sent };
  }

  /**
   * Starts a run, waits for its end and checks its record. A lost answer is asked for again under the same key: what was
   * started once is not started twice. Throws Refused or Failed.
   */
  async run(program: Program, options: Options = {}): Promise<Run> {
    const once = { ...options, key: options.key ?? randomBytes(16).toString("hex"), wait: LONGEST_WAIT_MS / 1000 };
    for (let left = TRIES - 1; ; left--) {
      try {
        let { run, sent } = await this.start(program, once);
        while (run.state !== "ended") {
          await this.watch(run.run, Number.MAX_SAFE_INTEGER);
          run = await this.get({ run: run.run });
        }
        return check(run, sent, options.minimumIsolation);
      } catch (error) {
        if (error instanceof Refused || error instanceof Failed) throw error;
        if (left === 0) throw new Failed(`no answer from the daemon: ${error}`);
        await new Promise((done) => setTimeout(done, 200));
      }
    }
  }

  async get(asked: { run: string } | { idempotencyKey: string }): Promise<Run> {
    return bytesOf(await this.call("Get", JSON.stringify(asked)));
  }

  /** The caller's runs, newest first; those of all callers where everybody is asked for, with the scope `code:admin`. */
  async list(state?: Run["state"], everybody = false): Promise<Run[]> {
    return (await this.call("List", JSON.stringify(state ? { state, everybody } : { everybody }))).runs;
  }

  /** What the caller may have and has; all callers and the daemon where everybody is asked for, with the scope `code:admin`. */
  async limits(everybody = false): Promise<{ callers: CallerLimits[]; daemon?: Standing }> {
    return this.call("Limits", JSON.stringify({ everybody }));
  }

  /** What each of these grants opens. */
  async grants(names: string[]): Promise<GrantSurface[]> {
    return (await this.call("Grants", JSON.stringify({ grants: names }))).grants;
  }

  /** Output after a place, waited for. */
  async watch(run: string, after = 0, waitMs = LONGEST_WAIT_MS) {
    const watched = await this.call("Watch", JSON.stringify({ run, after, waitMs }));
    const output: { stream: "stdout" | "stderr"; data: string }[] = watched.output;
    return {
      state: watched.state as Run["state"],
      next: watched.next as number,
      truncated: watched.truncated as boolean,
      output: output.map((piece) => ({ stream: piece.stream, data: Buffer.from(piece.data, "base64") })),
    };
  }

  /** What the program writes, as it writes it, until it ends. */
  async *follow(run: string) {
    for (let after = 0; ; ) {
      const watched = await this.watch(run, after);
      after = watched.next;
      yield* watched.output;
      if (watched.state === "ended") return;
    }
  }

  /**
   * Gives a run that was started with `stdinOpen` more input, from `offset` on, which is what was given before; waits for room. A
   * lost answer may be asked for again: nothing is taken twice. Gives the next offset, which is less than all of `data` only
   * where the run has ended.
   */
  async write(run: string, offset: number, data: Uint8Array | string, end = false): Promise<number> {
    for (let left = Buffer.from(data); ; ) {
      const piece = left.subarray(0, MAX_STDIN_BYTES);
      const last = end && piece.length === left.length;
      const asked = { run, offset, data: piece.toString("base64"), end: last, waitMs: LONGEST_WAIT_MS };
      const written = await this.call("Write", JSON.stringify(asked));
      left = left.subarray(Math.max(written.taken - offset, 0));
      offset = written.taken;
      if (left.length === 0 || written.ended || written.state === "ended") return offset;
    }
  }

  /** Ends a run; nothing of it is left when this is done. */
  async cancel(run: string): Promise<Run> {
    return bytesOf(await this.call("Cancel", JSON.stringify({ run })));
  }

  private async call(procedure: string, body: string, headers: Record<string, string> = {}): Promise<any> {
    const asked = randomBytes(16).toString("hex");
    const response = await fetch(`${this.base}/freeboard.v1.Runs/${procedure}`, {
      method: "POST",
      body,
      redirect: "error",
      signal: AbortSignal.timeout(this.timeoutMs),
      headers: {
        "Content-Type": "application/json",
        Authorization: `Bearer ${this.token}`,
        "Freeboard-Request-Id": asked,
        ...headers,
      },
    });
    const text = await response.text();
    if (response.headers.get("freeboard-request-id") !== asked) throw new Failed("the answer is not bound to the request");
    if (response.status === 200) return JSON.parse(text);
    const reason = response.headers.get("freeboard-not-dispatched") ?? response.headers.get("plimsoll-not-dispatched");
    let code = `HTTP ${response.status}`;
    let message = text.slice(0, 200).trim();
    try {
      ({ code, message = "" } = JSON.parse(text));
    } catch {
      // Not of a procedure: the text is all there is.
    }
    throw reason ? new Refused(code, reason, message) : new Failed(`${code}: ${message}`);
  }
}

/** The run, when it has a result whose record is that of `sent` and of the result. Throws Refused or Failed. */
export function check(run: Run, sent: string, floor = ""): Run {
  if (run.executed === "no") {
    const { code, reason, message } = run.refusal ?? { code: "canceled", reason: "", message: `the run is ${run.ending}` };
    throw new Refused(code, reason, message);
  }
  const { record, result, ending } = run;
  if (!record || !result || !ending) throw new Failed(run.refusal?.message ?? `the run is ${ending}`, run);
  const problems: string[] = [];
  if (record.run !== run.run) problems.push("the record is of another run");
  if (record.requestSha256 !== createHash("sha256").update(sent).digest("hex")) problems.push("the record is of another request");
  if (record.resultSha256 !== resultDigest(record.version, ending, result)) problems.push("the result is not the one of the record");
  if (record.recordSha256 !== recordDigest(record)) problems.push("the record does not match its own digest");
  if (floor && TIERS.indexOf(record.isolation) < TIERS.indexOf(floor)) {
    problems.push(`it ran at tier ${record.isolation}, below ${floor}`);
  }
  if (problems.length > 0) throw new Failed(problems.join("; "), run);
  return run;
}

type Value = string | number | boolean | Buffer;

export function resultDigest(version: number, ending: string, result: RunResult): string {
  const fields: Value[] = ["ending", ending, "detail", result.detail ?? "", "steps", result.steps.length];
  for (const step of result.steps) {
    fields.push("step_command", step.command ?? "", "step_exit_code", step.exitCode, "step_timed_out", step.timedOut);
    fields.push("step_stdout", step.stdout, "step_stderr", step.stderr);
    fields.push("step_stdout_truncated", step.stdoutTruncated, "step_stderr_truncated", step.stderrTruncated);
  }
  const artifacts = result.artifacts ?? [];
  fields.push("artifacts", artifacts.length);
  for (const artifact of artifacts) fields.push("artifact_path", artifact.path, "artifact_content", artifact.content);
  fields.push("artifacts_truncated", result.artifactsTruncated, "evidence", result.evidence.length);
  for (const fact of result.evidence) fields.push("fact_name", fact.name, "fact_value", fact.value, "fact_met", fact.met);
  if (version > 1) {
    const { requests, refused = [], stdin } = result;
    fields.push("requests", requests !== undefined);
    if (requests) {
      fields.push("requests_allowed", requests.allowed, "requests_denied", requests.denied);
      fields.push("requests_failed", requests.failed, "requests_shed", requests.shed);
    }
    fields.push("refused", refused.length);
    for (const one of refused) {
      fields.push("refused_verdict", one.verdict, "refused_method", one.method, "refused_host", one.host);
      fields.push("refused_path", one.path, "refused_reason", one.reason);
    }
    fields.push("stdin", stdin !== undefined);
    if (stdin) fields.push("stdin_bytes", stdin.bytes, "stdin_sha256", stdin.sha256);
  }
  return digest(`freeboard.run-result.v${version}`, fields);
}

export function recordDigest(record: RunRecord): string {
  return digest(`freeboard.run-record.v${record.version}`, [
    "run", record.run, "request_sha256", record.requestSha256, "result_sha256", record.resultSha256,
    "provider", record.provider, "isolation", record.isolation, "environment", record.environment,
    "policy", record.policy, "started_unix_ms", record.startedUnixMs, "ended_unix_ms", record.endedUnixMs,
  ]);
}

function digest(domain: string, fields: Value[]): string {
  const hash = createHash("sha256");
  for (const value of [domain, ...fields]) {
    const raw = Buffer.isBuffer(value) ? value : Buffer.from(String(value));
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(raw.length));
    hash.update(length).update(raw);
  }
  return hash.digest("hex");
}

/** Output and artifacts as bytes. */
function bytesOf(run: any): Run {
  for (const step of run.result?.steps ?? []) {
    step.stdout = Buffer.from(step.stdout, "base64");
    step.stderr = Buffer.from(step.stderr, "base64");
  }
  for (const artifact of run.result?.artifacts ?? []) artifact.content = Buffer.from(artifact.content, "base64");
  return run;
}

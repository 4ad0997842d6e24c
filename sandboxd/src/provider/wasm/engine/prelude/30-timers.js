// setTimeout, setInterval, queueMicrotask. The worker waits; here is only the list.

const MOST_TIMERS = 10000;      // timers of one run; setTimeout beyond that throws
const LONGEST_MS = 0x7fffffff;  // as elsewhere: a longer delay is a delay of 1 ms
const timers = new Map();       // number -> { due, every, run }, in order of creation
let nextTimer = 1;

function rearm() {
    let due = Infinity;
    for (const timer of timers.values()) if (timer.due < due) due = timer.due;
    native.arm(due);
}

function setTimer(callback, delay, values, repeats) {
    if (typeof callback !== "function") throw new TypeError("the callback is not a function");
    if (timers.size >= MOST_TIMERS) throw new RangeError("too many timers");
    delay = Number(delay);
    if (!(delay >= 1 && delay <= LONGEST_MS)) delay = 1;
    const number = nextTimer++;
    timers.set(number, { due: native.monotonic() + delay, every: repeats ? delay : 0, run: () => callback(...values) });
    rearm();
    return number;
}

function clearTimer(number) {
    if (timers.delete(number)) rearm();
}

hooks.fire = () => {
    const now = native.monotonic();
    let first;
    for (const [number, timer] of timers)
        if (timer.due <= now && (!first || timer.due < first.timer.due)) first = { number, timer };
    if (first) {
        if (first.timer.every) first.timer.due = now + first.timer.every;
        else timers.delete(first.number);
    }
    // Before the callback: when it throws, the run ends, and nothing is left half done.
    rearm();
    if (first) first.timer.run();
};

expose("setTimeout", function setTimeout(callback, delay, ...values) { return setTimer(callback, delay, values, false); });
expose("setInterval", function setInterval(callback, delay, ...values) { return setTimer(callback, delay, values, true); });
expose("setImmediate", function setImmediate(callback, ...values) { return setTimer(callback, 1, values, false); });
expose("clearTimeout", clearTimer);
expose("clearInterval", clearTimer);
expose("clearImmediate", clearTimer);
expose("queueMicrotask", function queueMicrotask(callback) {
    if (typeof callback !== "function") throw new TypeError("the callback is not a function");
    Promise.resolve().then(() => callback());
});

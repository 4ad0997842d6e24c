// AbortController and AbortSignal, as far as fetch and timers need them.

const makeSignal = Symbol("makeSignal");
const abortError = (message, name) => { const error = new Error(message); error.name = name; return error; };

class AbortSignal {
    #reason; #aborted = false; #listeners = new Set();
    onabort = null;
    constructor(key) { if (key !== makeSignal) throw new TypeError("Illegal constructor"); }
    static abort(reason) { const signal = new AbortSignal(makeSignal); signal[makeSignal](reason); return signal; }
    static timeout(delay) {
        const signal = new AbortSignal(makeSignal);
        setTimer(() => signal[makeSignal](abortError("the time was over", "TimeoutError")), delay, [], false);
        return signal;
    }
    static any(signals) {
        const any = new AbortSignal(makeSignal);
        for (const signal of signals) {
            if (signal.aborted) { any[makeSignal](signal.reason); break; }
            signal.addEventListener("abort", () => any[makeSignal](signal.reason));
        }
        return any;
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    addEventListener(type, listener) { if (type === "abort") this.#listeners.add(listener); }
    removeEventListener(type, listener) { if (type === "abort") this.#listeners.delete(listener); }
    [makeSignal](reason = abortError("the operation was aborted", "AbortError")) {
        if (this.#aborted) return;
        this.#aborted = true;
        this.#reason = reason;
        const event = { type: "abort", target: this };
        if (typeof this.onabort === "function") this.onabort(event);
        for (const listener of this.#listeners) {
            if (typeof listener === "function") listener.call(this, event); else listener.handleEvent(event);
        }
    }
}

class AbortController {
    #signal = new AbortSignal(makeSignal);
    get signal() { return this.#signal; }
    abort(reason) { this.#signal[makeSignal](reason); }
}

expose("AbortSignal", AbortSignal);
expose("AbortController", AbortController);

// The WebAssembly face of the JavaScript engine: what the worker calls, and the few things that guest code can ask of it.
//
// In: source text and, later, answers to requests. Out: output bytes and requests. There is no file, clock, random
// source or socket here beyond the functions imported below; the WASI functions that the C library would import are
// defined at the end of this file and refuse.
//
// Two runs from one snapshot must not draw the same numbers: the seed of Math.random is set after the snapshot (engine.c).

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quickjs.h"

// engine.c
void engine_seed(JSContext *context, uint64_t seed);
void engine_limit_stack(JSRuntime *runtime, size_t bytes);

#define IMPORT(name) __attribute__((import_module("freeboard"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

// The host ends the instance when it has had enough output; `stream` is 1 or 2.
IMPORT(output) void host_output(int stream, const char *bytes, size_t length);
// Milliseconds since 1970 UTC.
IMPORT(wall_ms) double host_wall_ms(void);
// Milliseconds of a clock that never goes back.
IMPORT(monotonic_ms) double host_monotonic_ms(void);
IMPORT(random) void host_random(void *bytes, size_t length);
// Starts a request: `head` is JSON, `body` raw. Returns its number, or a negative number when too many wait already.
IMPORT(request) int host_request(const char *head, size_t head_length, const void *body, size_t body_length);
IMPORT(cancel) void host_cancel(int request);

// C stack of guest code in bytes, of the 1 MiB that build.sh gives: about 2,000 nested calls, then a RangeError. More would
// run into the end of the machine stack first (2 MiB, worker/engine.rs), which is a trap.
enum { STACK_BYTES = 640 * 1024 };
// Most bytes of one answer of host_random: what crypto.getRandomValues allows at once.
enum { RANDOM_BYTES = 65536 };

// What fb_start and fb_turn say to the worker.
enum { FINISHED = -1, FAILED = -2, OUT_OF_MEMORY = -3, UNSETTLED = -4 };

static JSRuntime *runtime;
static JSContext *context;
static JSValue hooks;            // what the prelude hands back: fire, deliver, configure, report
static JSValue main_promise;
static double next_timer = INFINITY;
static int waiting;              // requests without an answer
static char *inbox;              // where the worker writes before a call
static size_t inbox_size;

// Rejected promises that nobody handles yet, in order.
typedef struct { JSValue promise, reason; } Rejection;
static Rejection *rejections;
static int rejection_count, rejection_space;

static int report(JSValue error);

// ---- functions that the prelude gets ------------------------------------------------------------------------------

static JSValue native_output(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    int stream;
    size_t length;
    if (JS_ToInt32(ctx, &stream, argv[0])) return JS_EXCEPTION;
    const char *text = JS_ToCStringLen(ctx, &length, argv[1]);
    if (!text) return JS_EXCEPTION;
    host_output(stream, text, length);
    JS_FreeCString(ctx, text);
    return JS_UNDEFINED;
}

static JSValue native_monotonic(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    return JS_NewFloat64(ctx, host_monotonic_ms());
}

static JSValue native_random(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    int length;
    static uint8_t bytes[RANDOM_BYTES];
    if (JS_ToInt32(ctx, &length, argv[0])) return JS_EXCEPTION;
    if (length < 0 || length > RANDOM_BYTES) return JS_ThrowRangeError(ctx, "at most 65536 random bytes at once");
    host_random(bytes, length);
    return JS_NewArrayBufferCopy(ctx, bytes, length);
}

// request(head, body): body is an ArrayBuffer or undefined.
static JSValue native_request(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    size_t head_length, body_length = 0;
    const uint8_t *body = NULL;
    if (!JS_IsUndefined(argv[1])) {
        body = JS_GetArrayBuffer(ctx, &body_length, argv[1]);
        if (!body && body_length) return JS_EXCEPTION;
    }
    const char *head = JS_ToCStringLen(ctx, &head_length, argv[0]);
    if (!head) return JS_EXCEPTION;
    int number = host_request(head, head_length, body, body_length);
    JS_FreeCString(ctx, head);
    if (number >= 0) waiting++;
    return JS_NewInt32(ctx, number);
}

static JSValue native_cancel(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    int number;
    if (JS_ToInt32(ctx, &number, argv[0])) return JS_EXCEPTION;
    host_cancel(number);
    if (waiting) waiting--;
    return JS_UNDEFINED;
}

static JSValue native_arm(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    return JS_ToFloat64(ctx, &next_timer, argv[0]) ? JS_EXCEPTION : JS_UNDEFINED;
}

static JSValue native_encode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    size_t length;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);
    if (!text) return JS_EXCEPTION;
    JSValue buffer = JS_NewArrayBufferCopy(ctx, (const uint8_t *)text, length);
    JS_FreeCString(ctx, text);
    return buffer;
}

// The length of the well-formed UTF-8 sequence at `p`, or 0.
static size_t utf8_sequence(const uint8_t *p, size_t left) {
    if (p[0] < 0x80) return 1;
    size_t n = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
    if (!n || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return n;
}

// decode(buffer, offset, length, fatal)
static JSValue native_decode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    size_t size;
    int64_t offset, length;
    const uint8_t *bytes = JS_GetArrayBuffer(ctx, &size, argv[0]);
    if (!bytes && size) return JS_EXCEPTION;
    if (JS_ToInt64(ctx, &offset, argv[1]) || JS_ToInt64(ctx, &length, argv[2])) return JS_EXCEPTION;
    if (offset < 0 || length < 0 || (uint64_t)offset + (uint64_t)length > size)
        return JS_ThrowRangeError(ctx, "outside of the buffer");
    int fatal = JS_ToBool(ctx, argv[3]);
    size_t at = offset, end = offset + length, bad = 0;
    while (at < end) {
        size_t n = utf8_sequence(bytes + at, end - at);
        if (!n) bad++;
        at += n ? n : 1;
    }
    if (!bad) return JS_NewStringLen(ctx, (const char *)bytes + offset, length);
    if (fatal) return JS_ThrowTypeError(ctx, "the bytes are not valid UTF-8");
    char *clean = js_malloc(ctx, length + 2 * bad);
    if (!clean) return JS_EXCEPTION;
    size_t to = 0;
    for (at = offset; at < end;) {
        size_t n = utf8_sequence(bytes + at, end - at);
        memcpy(clean + to, n ? (const char *)bytes + at : "\xef\xbf\xbd", n ? n : 3);
        to += n ? n : 3;
        at += n ? n : 1;
    }
    JSValue text = JS_NewStringLen(ctx, clean, to);
    js_free(ctx, clean);
    return text;
}

static JSValue native_clone(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    size_t size;
    uint8_t *bytes = JS_WriteObject(ctx, &size, argv[0], JS_WRITE_OBJ_REFERENCE);
    if (!bytes) return JS_EXCEPTION;
    JSValue copy = JS_ReadObject(ctx, bytes, size, JS_READ_OBJ_REFERENCE);
    js_free(ctx, bytes);
    return copy;
}

// promise(value): [state, result], or undefined for anything else.
static JSValue native_promise(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
    int state = JS_PromiseState(ctx, argv[0]);
    if (state < 0) return JS_UNDEFINED;
    JSValue pair = JS_NewArray(ctx);
    if (JS_IsException(pair)) return pair;
    JS_SetPropertyUint32(ctx, pair, 0, JS_NewInt32(ctx, state));
    JS_SetPropertyUint32(ctx, pair, 1, JS_PromiseResult(ctx, argv[0]));
    return pair;
}

static const JSCFunctionListEntry natives[] = {
    JS_CFUNC_DEF("output", 2, native_output),       JS_CFUNC_DEF("monotonic", 0, native_monotonic),
    JS_CFUNC_DEF("random", 1, native_random),       JS_CFUNC_DEF("request", 2, native_request),
    JS_CFUNC_DEF("cancel", 1, native_cancel),       JS_CFUNC_DEF("arm", 1, native_arm),
    JS_CFUNC_DEF("encode", 1, native_encode),       JS_CFUNC_DEF("decode", 4, native_decode),
    JS_CFUNC_DEF("clone", 1, native_clone),         JS_CFUNC_DEF("promise", 1, native_promise),
};

// ---- errors that nobody caught ------------------------------------------------------------------------------------

static void note_rejection(JSContext *ctx, JSValueConst promise, JSValueConst reason, bool handled, void *opaque) {
    if (!handled) {
        if (rejection_count == rejection_space) {
            int space = rejection_space ? 2 * rejection_space : 16;
            Rejection *more = realloc(rejections, space * sizeof *more);
            if (!more) return;
            rejections = more;
            rejection_space = space;
        }
        rejections[rejection_count++] = (Rejection){ JS_DupValue(ctx, promise), JS_DupValue(ctx, reason) };
        return;
    }
    for (int i = 0; i < rejection_count; i++) {
        if (JS_VALUE_GET_PTR(rejections[i].promise) != JS_VALUE_GET_PTR(promise)) continue;
        JS_FreeValue(ctx, rejections[i].promise);
        JS_FreeValue(ctx, rejections[i].reason);
        memmove(rejections + i, rejections + i + 1, (rejection_count - i - 1) * sizeof *rejections);
        rejection_count--;
        return;
    }
}

static int is_out_of_memory(JSValueConst error) {
    if (!JS_IsError(error)) return JS_IsNull(error);
    JSValue message = JS_GetPropertyStr(context, error, "message");
    const char *text = JS_ToCString(context, message);
    int yes = !text || strcmp(text, "out of memory") == 0;
    if (text) JS_FreeCString(context, text);
    JS_FreeValue(context, message);
    return yes;
}

// Writes the error to the error stream as people expect it. Takes the value.
static int report(JSValue error) {
    if (is_out_of_memory(error)) {
        static const char text[] = "Uncaught InternalError: out of memory\n";
        host_output(2, text, sizeof text - 1);
        return OUT_OF_MEMORY;
    }
    JSValue hook = JS_GetPropertyStr(context, hooks, "report");
    JSValue done = JS_Call(context, hook, JS_UNDEFINED, 1, (JSValueConst *)&error);
    if (JS_IsException(done)) {
        static const char text[] = "Uncaught error that cannot be shown\n";
        JS_FreeValue(context, JS_GetException(context));
        host_output(2, text, sizeof text - 1);
    }
    return FAILED;
}

static JSValue call_hook(const char *name, int argc, JSValueConst *argv) {
    JSValue hook = JS_GetPropertyStr(context, hooks, name);
    JSValue result = JS_Call(context, hook, JS_UNDEFINED, argc, argv);
    JS_FreeValue(context, hook);
    return result;
}

// ---- what the worker calls ----------------------------------------------------------------------------------------

static const char prelude[] = {
#include "prelude.inc"
    , 0
};

// Runs once, when the snapshot is made. `_initialize` has run before.
EXPORT(snapshot) int snapshot(void) {
    runtime = JS_NewRuntime();
    if (!runtime) return 1;
    context = JS_NewContext(runtime);
    if (!context) return 2;
    JS_SetHostPromiseRejectionTracker(runtime, note_rejection, NULL);
    JSValue functions = JS_NewObject(context);
    JS_SetPropertyFunctionList(context, functions, natives, sizeof natives / sizeof *natives);
    JSValue make = JS_Eval(context, prelude, sizeof prelude - 1, "freeboard:prelude", JS_EVAL_TYPE_GLOBAL);
    if (JS_IsException(make)) return 3;
    hooks = JS_Call(context, make, JS_UNDEFINED, 1, (JSValueConst *)&functions);
    if (JS_IsException(hooks)) return 4;
    JS_FreeValue(context, make);
    JS_FreeValue(context, functions);
    main_promise = JS_UNDEFINED;
    JSContext *which;
    while (JS_ExecutePendingJob(runtime, &which) > 0) {}
    JS_RunGC(runtime);
    return 0;
}

// Where the worker may write `size` bytes, until the next call of this function. 0 when there is no room.
EXPORT(inbox) char *inbox_of(size_t size) {
    if (size <= inbox_size) return inbox;
    free(inbox);
    inbox = malloc(size);
    inbox_size = inbox ? size : 0;
    return inbox;
}

// The inbox holds the source text, a NUL, and `surface_length` bytes of JSON for the `host` object.
EXPORT(start) int64_t start(size_t code_length, size_t surface_length, uint64_t seed) {
    engine_seed(context, seed);
    engine_limit_stack(runtime, STACK_BYTES);
    if (surface_length) {
        JSValue surface = JS_ParseJSON(context, inbox + code_length + 1, surface_length, "freeboard:surface");
        if (JS_IsException(surface)) return report(JS_GetException(context));
        JSValue done = call_hook("configure", 1, (JSValueConst *)&surface);
        JS_FreeValue(context, surface);
        if (JS_IsException(done)) return report(JS_GetException(context));
    }
    main_promise = JS_Eval(context, inbox, code_length, "main.js", JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_ASYNC);
    if (JS_IsException(main_promise)) return report(JS_GetException(context));
    return 0;
}

// Does everything that can be done now. Returns for how many milliseconds there is nothing to do (a very large number
// when only answers are waited for), or one of the negative numbers above.
EXPORT(turn) int64_t turn(void) {
    for (;;) {
        JSContext *which;
        int did;
        while ((did = JS_ExecutePendingJob(runtime, &which)) > 0) {}
        if (did < 0) return report(JS_GetException(context));
        if (rejection_count) return report(JS_DupValue(context, rejections[0].reason));
        if (next_timer == INFINITY) break;
        double left = next_timer - host_monotonic_ms();
        if (left > 0) return left < 1 ? 1 : left > 9e15 ? INT64_MAX : (int64_t)left;
        next_timer = INFINITY;
        JSValue done = call_hook("fire", 0, NULL);
        if (JS_IsException(done)) return report(JS_GetException(context));
        JS_FreeValue(context, done);
    }
    if (waiting) return INT64_MAX;
    return JS_PromiseState(context, main_promise) == JS_PROMISE_PENDING ? UNSETTLED : FINISHED;
}

// The answer to a request: the inbox holds JSON, a NUL, then the body.
EXPORT(deliver) int64_t deliver(int request, size_t head_length, size_t body_length) {
    if (waiting) waiting--;
    JSValue head = JS_ParseJSON(context, inbox, head_length, "freeboard:answer");
    if (JS_IsException(head)) return report(JS_GetException(context));
    JSValue body = JS_NewArrayBufferCopy(context, (uint8_t *)inbox + head_length + 1, body_length);
    if (JS_IsException(body)) return report(JS_GetException(context));
    JSValue arguments[] = { JS_NewInt32(context, request), head, body };
    JSValue done = call_hook("deliver", 3, (JSValueConst *)arguments);
    JS_FreeValue(context, head);
    JS_FreeValue(context, body);
    if (JS_IsException(done)) return report(JS_GetException(context));
    JS_FreeValue(context, done);
    return 0;
}

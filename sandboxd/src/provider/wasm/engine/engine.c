// The engine, with two functions that need its private structures. Compiled as one unit with quickjs.c for that reason.

#include "quickjs.c"

void engine_seed(JSContext *context, uint64_t seed) {
    context->random_state = seed ? seed : 1;
}

// The engine itself sets no limit when compiled for WASI: without one, deep recursion is a trap, not a RangeError.
void engine_limit_stack(JSRuntime *runtime, size_t bytes) {
    runtime->stack_top = js_get_stack_pointer();
    runtime->stack_limit = runtime->stack_top - bytes;
}

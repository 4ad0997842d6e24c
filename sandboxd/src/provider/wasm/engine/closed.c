// Every function that the C library imports from WASI, defined here under the names that it imports, so that the finished
// file imports nothing but what main.c declares. The clock is the worker's; everything else refuses.

#include <stdint.h>

__attribute__((import_module("freeboard"), import_name("wall_ms"))) double host_wall_ms(void);
__attribute__((import_module("freeboard"), import_name("monotonic_ms"))) double host_monotonic_ms(void);

enum { SUCCESS = 0, BADF = 8, REALTIME = 0 };

#define WASI(name) __imported_wasi_snapshot_preview1_##name

int32_t WASI(clock_time_get)(int32_t clock, int64_t precision, int32_t time) {
    double ms = clock == REALTIME ? host_wall_ms() : host_monotonic_ms();
    *(uint64_t *)(uintptr_t)time = (uint64_t)(ms * 1e6);
    return SUCCESS;
}

int32_t WASI(fd_close)(int32_t fd) { return BADF; }

int32_t WASI(fd_fdstat_get)(int32_t fd, int32_t stat) { return BADF; }

int32_t WASI(fd_seek)(int32_t fd, int64_t offset, int32_t whence, int32_t to) { return BADF; }

int32_t WASI(fd_write)(int32_t fd, int32_t vectors, int32_t count, int32_t written) { return BADF; }

/* The row store: this rank's rows of one packed Engram file (version 2), read from NVMe while the GPU works.
 *
 * C ABI, for ctypes and for a CUDA host function. The library makes no CUDA call. All memory, threads and rings are
 * made by rs_open; rs_lookup allocates nothing. A store belongs to the process that opened it.
 */
#ifndef SPARK_ROW_STORE_H
#define SPARK_ROW_STORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RS_API __attribute__((visibility("default")))
#define RS_ABI 1u

typedef struct rs_store rs_store;

enum rs_status {
    RS_OK = 0,
    RS_BAD_FILE = 1,    /* not a packed file, of another rank, revision or size: nothing was opened */
    RS_BAD_ID = 2,      /* an id outside the table */
    RS_READ_FAILED = 3, /* a page that could not be read whole and right, twice */
    RS_BAD_CALL = 4     /* an argument or a resource (threads, memory): see the text */
};

enum rs_backend { RS_AUTO = 0, RS_THREADS = 1, RS_IO_URING = 2 };

/* For tests: sees every finished page read and may replace its result (bytes read, or -errno) and the page's bytes.
 * With the thread pool it is called by several threads at once. `attempt` is 0, then 1. */
typedef int32_t (*rs_read_hook)(void *context, uint64_t page, uint32_t attempt, void *bytes, int32_t result);

/* What the file must be. A field of UINT32_MAX / UINT64_MAX, a NULL revision or fingerprint is not compared. */
typedef struct rs_expected {
    uint32_t layer, rank, tp, weight_bytes, scale_bytes, unused;
    uint64_t row_lo, row_hi, total_rows;
    const char *revision;
    const uint8_t *fingerprint; /* 32 bytes */
} rs_expected;

typedef struct rs_options {
    uint32_t abi;           /* RS_ABI */
    uint32_t backend;       /* enum rs_backend; RS_AUTO: io_uring where the probe's read works, else threads */
    uint32_t depth;         /* page reads in flight, 1..4096: threads of the pool; the ring has twice as many entries */
    uint32_t strict;        /* 1: any error of a lookup is written to stderr and ends the process (abort) */
    uint32_t cache_ways;    /* 1..16 */
    uint32_t stats_seconds; /* a statistics line on stderr at most this often; 0: never */
    uint32_t block_ids;     /* ids handled together: "a page wanted twice is read once" holds within a block */
    uint32_t quiet;         /* 1: nothing on stderr, except before a strict abort */
    uint64_t cache_bytes;   /* upper bound of the row cache; 0: none */
    rs_read_hook hook;
    void *hook_context;
} rs_options;

typedef struct rs_info {
    uint32_t layer, rank, tp, row_bytes, weight_bytes, scale_bytes;
    uint32_t backend;      /* RS_THREADS or RS_IO_URING: what is used */
    uint32_t direct;       /* 1: O_DIRECT; 0: the file system refuses it, reads go through the page cache */
    uint32_t fixed_memory; /* io_uring: the page buffers are registered with the kernel */
    uint32_t hardware_crc;
    uint64_t row_lo, row_hi, total_rows, cache_slots, cache_bytes;
} rs_info;

typedef struct rs_statistics {
    uint64_t lookups;    /* calls */
    uint64_t ids;        /* asked for, other ranks' included */
    uint64_t owned;      /* of those, this rank's */
    uint64_t cache_hits; /* of those, answered by the cache */
    uint64_t pages;      /* pages read */
    uint64_t retries;    /* reads done again: short, failed or corrupt */
    uint64_t errors;     /* calls that ended with an error */
    uint64_t p50_ns, p99_ns; /* duration of a call, since the store was opened; 6 % resolution */
} rs_statistics;

/* What rs_host_lookup is given: fixed addresses, so that a captured graph can replay it with new ids. */
typedef struct rs_request {
    rs_store *store;
    const int64_t *ids;
    uint64_t count;
    void *out;
    int32_t status;  /* written: enum rs_status */
    int32_t unused;
} rs_request;

/* Opens `path`; `*store` is NULL unless RS_OK is returned. `error` gets a text, always terminated. */
RS_API int rs_open(const char *path, const rs_expected *expected, const rs_options *options, rs_store **store,
                   char *error, size_t error_bytes);
/* out[i] = row ids[i] (row_bytes each, packed) where this rank has it, else zeros. Any number of threads may call;
 * calls of one store follow each other. After an error `out` is all zeros. */
RS_API int rs_lookup(rs_store *store, const int64_t *ids, uint64_t count, void *out, char *error, size_t error_bytes);
/* The same as a CUDA host function: void (*)(void *), the argument is an rs_request. */
RS_API void rs_host_lookup(void *request);
RS_API void rs_describe(const rs_store *store, rs_info *info);
RS_API void rs_read_statistics(rs_store *store, rs_statistics *statistics);
RS_API void rs_close(rs_store *store);
/* Whether this process may use io_uring: 0, or the errno that says why not. */
RS_API int rs_probe_io_uring(void);
RS_API uint32_t rs_crc32c(const void *bytes, size_t count);
RS_API uint32_t rs_crc32c_portable(const void *bytes, size_t count);
/* For the packer. Makes the pages, from number `first_page` on, of `rows` rows whose weights and scales lie in two
 * arrays: every byte of ceil(rows / rows a page) * 4096 at `pages`. RS_BAD_CALL: such a row fits no page. */
RS_API int rs_build_pages(const void *weights, const void *scales, uint64_t rows, uint32_t weight_bytes,
                          uint32_t scale_bytes, uint64_t first_page, void *pages);
/* good[i] = 1 where page i of `count` verifies (checksum, number first_page + i), else 0; returns how many do not. */
RS_API uint64_t rs_verify_pages(const void *pages, uint64_t count, uint32_t weight_bytes, uint32_t scale_bytes,
                                uint64_t first_page, uint8_t *good);

#ifdef __cplusplus
}
#endif
#endif

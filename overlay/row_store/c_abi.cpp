// The functions of row_store.h: no exception leaves them.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "crc32c.h"
#include "pages.h"
#include "ring.h"
#include "store.h"

struct rs_store {
    row_store::Store store;
};

extern "C" {

int rs_open(const char *path, const rs_expected *expected, const rs_options *options, rs_store **store, char *error,
            size_t error_bytes) {
    *store = nullptr;
    std::string text;
    int status = RS_BAD_CALL;
    try {
        auto opened = std::make_unique<rs_store>();
        status = opened->store.open(path, *expected, *options, text);
        if (status == RS_OK) *store = opened.release();
    } catch (const std::exception &problem) {
        text = problem.what();
    }
    if (error && error_bytes) std::snprintf(error, error_bytes, "%s", text.c_str());
    return status;
}

int rs_lookup(rs_store *store, const int64_t *ids, uint64_t count, void *out, char *error, size_t error_bytes) {
    return store->store.lookup(ids, count, out, error, error_bytes);
}

void rs_host_lookup(void *request) {
    auto *wanted = static_cast<rs_request *>(request);
    wanted->status = wanted->store->store.lookup(wanted->ids, wanted->count, wanted->out, nullptr, 0);
}

void rs_describe(const rs_store *store, rs_info *info) { *info = store->store.describe(); }

void rs_read_statistics(rs_store *store, rs_statistics *statistics) { *statistics = store->store.statistics(); }

void rs_close(rs_store *store) { delete store; }

int rs_probe_io_uring(void) {
    row_store::Ring ring;
    return ring.open(4);
}

uint32_t rs_crc32c(const void *bytes, size_t count) { return row_store::crc32c(bytes, count); }

uint32_t rs_crc32c_portable(const void *bytes, size_t count) { return row_store::crc32c_portable(bytes, count); }

int rs_build_pages(const void *weights, const void *scales, uint64_t rows, uint32_t weight_bytes, uint32_t scale_bytes,
                   uint64_t first_page, void *pages) {
    if (row_store::rows_per_page(weight_bytes, scale_bytes) == 0) return RS_BAD_CALL;
    row_store::build_pages(static_cast<const unsigned char *>(weights), static_cast<const unsigned char *>(scales), rows,
                           weight_bytes, scale_bytes, first_page, static_cast<unsigned char *>(pages));
    return RS_OK;
}

uint64_t rs_verify_pages(const void *pages, uint64_t count, uint32_t weight_bytes, uint32_t scale_bytes,
                         uint64_t first_page, uint8_t *good) {
    if (row_store::rows_per_page(weight_bytes, scale_bytes) == 0) return count;
    return row_store::verify_pages(static_cast<const unsigned char *>(pages), count, weight_bytes, scale_bytes,
                                   first_page, good);
}

}  // extern "C"

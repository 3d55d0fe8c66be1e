// Proves one build of the row store on the machine (or emulator) it runs on, against a packed file and its rows:
//
//   row_store_self_test FILE ROWS [BATCHES]     ROWS: the whole table, row after row; prints one line a proof, exit 0
//
// CRC32C known values, instruction = portable; the file's pages made again from the rows are the same bytes, and each
// flipped bit is seen; random, repeated and border ids equal the table through every back end
// that this machine allows, with and without a cache; no allocation inside a lookup (malloc is counted below).
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "row_store.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<unsigned long> allocations{0};

void note() noexcept {
    if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// The whole process allocates through these: glibc's own under our names.
extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void *__libc_memalign(std::size_t, std::size_t);
void *malloc(std::size_t bytes) { return note(), __libc_malloc(bytes); }
void *calloc(std::size_t count, std::size_t bytes) { return note(), __libc_calloc(count, bytes); }
void *realloc(void *at, std::size_t bytes) { return note(), __libc_realloc(at, bytes); }
void *memalign(std::size_t edge, std::size_t bytes) { return note(), __libc_memalign(edge, bytes); }
void *aligned_alloc(std::size_t edge, std::size_t bytes) { return note(), __libc_memalign(edge, bytes); }
int posix_memalign(void **at, std::size_t edge, std::size_t bytes) {
    note();
    *at = __libc_memalign(edge, bytes);
    return *at ? 0 : ENOMEM;
}
}

namespace {

void fail(const std::string &what) {
    std::printf("FAILED %s\n", what.c_str());
    std::exit(1);
}

void check_crc(std::mt19937_64 &dice) {
    if (rs_crc32c("123456789", 9) != 0xE3069283U || rs_crc32c_portable("123456789", 9) != 0xE3069283U)
        fail("CRC32C of 123456789");
    std::vector<unsigned char> bytes(9000);
    for (unsigned char &byte : bytes) byte = static_cast<unsigned char>(dice());
    for (std::size_t count = 0; count <= bytes.size() - 8; count += count < 64 ? 1 : 37)
        for (std::size_t start = 0; start < 8; ++start)
            if (rs_crc32c(&bytes[start], count) != rs_crc32c_portable(&bytes[start], count))
                fail("CRC32C of " + std::to_string(count) + " bytes");
    std::printf("ok crc32c\n");
}

// The pages of `file`, built here from the table's rows, are its bytes; one flipped bit is one bad page.
void check_pages(const char *file, const std::string &table, const rs_info &info, std::mt19937_64 &dice) {
    std::ifstream input(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(input), {}};
    const std::size_t row = info.row_bytes, weight = info.weight_bytes, header = 4096;
    std::string weights, scales;
    for (std::uint64_t id = info.row_lo; id < info.row_hi; ++id) {
        weights += table.substr(id * row, weight);
        scales += table.substr(id * row + weight, row - weight);
    }
    std::vector<unsigned char> made(bytes.size() - header, 0xA5), good(made.size() / 4096);
    if (rs_build_pages(weights.data(), scales.data(), info.row_hi - info.row_lo, info.weight_bytes, info.scale_bytes, 0,
                       made.data()) != RS_OK ||
        std::memcmp(made.data(), bytes.data() + header, made.size()) != 0)
        fail("the pages that were built are not the file's");
    const auto bad = [&](std::uint64_t first) {
        return rs_verify_pages(made.data(), good.size(), info.weight_bytes, info.scale_bytes, first, good.data());
    };
    if (bad(0) != 0 || bad(1) != good.size()) fail("pages that verify");
    for (int turn = 0; turn < 200; ++turn) {
        const std::size_t at = dice() % made.size();
        const auto bit = static_cast<unsigned char>(1U << dice() % 8);
        made[at] ^= bit;
        if (bad(0) != 1 || good[at / 4096] != 0) fail("a flipped bit at byte " + std::to_string(at));
        made[at] ^= bit;
    }
    if (rs_build_pages(nullptr, nullptr, 1, 4096, 8, 0, nullptr) != RS_BAD_CALL) fail("a row larger than a page");
    std::printf("ok pages %zu\n", good.size());
}

std::vector<std::int64_t> some_ids(const rs_info &info, unsigned kind, std::mt19937_64 &dice) {
    const auto rows = static_cast<std::int64_t>(info.total_rows);
    const auto lo = static_cast<std::int64_t>(info.row_lo), hi = static_cast<std::int64_t>(info.row_hi);
    std::vector<std::int64_t> ids(1 + dice() % 400);
    for (std::int64_t &id : ids) {
        const auto roll = static_cast<std::int64_t>(dice() % info.total_rows);
        switch (kind % 4) {
            case 0: id = roll; break;
            case 1: id = lo + roll % (hi - lo); break;
            case 2: id = lo + roll % (hi - lo < 20 ? hi - lo : 20); break;
            default: id = (roll & 1 ? lo : hi) + roll % 5 - 2; break;
        }
        if (id < 0 || id >= rows) id = rows - 1;
    }
    return ids;
}

// Whether CRC32C was by instruction.
bool check_rows(const char *file, const std::string &table, const rs_options &options, int batches,
                std::mt19937_64 &dice) {
    rs_expected any{};
    any.layer = any.rank = any.tp = any.weight_bytes = any.scale_bytes = UINT32_MAX;
    any.row_lo = any.row_hi = any.total_rows = UINT64_MAX;
    char error[512];
    rs_store *store = nullptr;
    if (rs_open(file, &any, &options, &store, error, sizeof error) != RS_OK) fail(error);
    rs_info info;
    rs_describe(store, &info);
    if (table.size() != info.total_rows * info.row_bytes) fail("the table has another size");
    if (options.backend == RS_THREADS && options.cache_bytes == 0) check_pages(file, table, info, dice);
    std::vector<unsigned char> out(400 * std::size_t{info.row_bytes});
    unsigned long inside = 0;
    for (int batch = 0; batch < batches; ++batch) {
        const std::vector<std::int64_t> ids = some_ids(info, static_cast<unsigned>(batch), dice);
        std::memset(out.data(), 0xA5, out.size());
        rs_request request{store, ids.data(), ids.size(), out.data(), -1, 0};
        allocations.store(0);
        counting.store(true);
        rs_host_lookup(&request);
        counting.store(false);
        inside += allocations.load();
        if (request.status != RS_OK) fail("lookup status " + std::to_string(request.status));
        for (std::size_t place = 0; place < ids.size(); ++place) {
            const auto id = static_cast<std::uint64_t>(ids[place]);
            const bool owned = id >= info.row_lo && id < info.row_hi;
            const std::string wanted = owned ? table.substr(id * info.row_bytes, info.row_bytes)
                                             : std::string(info.row_bytes, '\0');
            if (std::memcmp(out.data() + place * info.row_bytes, wanted.data(), info.row_bytes) != 0)
                fail("row " + std::to_string(id));
        }
    }
    if (inside != 0) fail(std::to_string(inside) + " allocations inside lookups");
    const std::int64_t beyond = static_cast<std::int64_t>(info.total_rows);
    if (rs_lookup(store, &beyond, 1, out.data(), error, sizeof error) != RS_BAD_ID ||
        !std::strstr(error, std::to_string(beyond).c_str()))
        fail("an id outside the table");
    rs_close(store);
    std::printf("ok rows backend=%s direct=%u cache_slots=%llu batches=%d allocations=%lu\n",
                info.backend == RS_IO_URING ? "io_uring" : "threads", info.direct,
                static_cast<unsigned long long>(info.cache_slots), batches, inside);
    return info.hardware_crc != 0;
}

}  // namespace

int main(int count, char **words) {
    if (count < 3) fail("usage: row_store_self_test FILE ROWS [BATCHES]");
    std::ifstream input(words[2], std::ios::binary);
    const std::string table{std::istreambuf_iterator<char>(input), {}};
    const int batches = count > 3 ? std::atoi(words[3]) : 200;
    std::mt19937_64 dice(5);
    check_crc(dice);
    bool instruction = false;
    const int forbidden = rs_probe_io_uring();
    for (const rs_backend backend : {RS_THREADS, RS_IO_URING, RS_AUTO}) {
        if (backend == RS_IO_URING && forbidden != 0) {
            std::printf("no io_uring here: errno %d\n", forbidden);
            continue;
        }
        for (const std::uint64_t cache : {std::uint64_t{0}, std::uint64_t{100'000}}) {
            rs_options options{};
            options.abi = RS_ABI;
            options.backend = backend;
            options.depth = 16;
            options.cache_ways = 4;
            options.block_ids = 256;
            options.quiet = 1;
            options.cache_bytes = cache;
            instruction = check_rows(words[1], table, options, batches, dice);
        }
    }
    std::printf("ok all, crc32c by %s\n", instruction ? "instruction" : "table");
    return 0;
}

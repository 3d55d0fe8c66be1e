#include "store.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "crc32c.h"

namespace row_store {
namespace {

constexpr std::uint32_t kPlaceBits = 20;  // a block's places; the rows above take the other 44 bits of a sort key
constexpr std::uint32_t kMaxBlock = 1U << kPlaceBits;
constexpr std::uint64_t kPlaceMask = kMaxBlock - 1;
constexpr std::uint32_t kMaxDepth = 4096, kMaxWays = 16;
constexpr std::size_t kTextBytes = 1024;

const char *name_of(rs_backend backend) noexcept { return backend == RS_IO_URING ? "io_uring" : "threads"; }

}  // namespace

int Store::checked(const rs_options &options, std::string &error) const {
    if (options.abi != RS_ABI)
        error = "the caller was made for another version of this library";
    else if (options.backend > RS_IO_URING)
        error = "backend " + std::to_string(options.backend) + " does not exist";
    else if (options.depth < 1 || options.depth > kMaxDepth)
        error = "depth " + std::to_string(options.depth) + " is not from 1 to 4096";
    else if (options.cache_ways < 1 || options.cache_ways > kMaxWays)
        error = "cache ways " + std::to_string(options.cache_ways) + " are not from 1 to 16";
    else if (options.block_ids < 1 || options.block_ids > kMaxBlock)
        error = "a block of " + std::to_string(options.block_ids) + " ids is not from 1 to 1048576";
    else
        return RS_OK;
    return RS_BAD_CALL;
}

int Store::open(const char *path, const rs_expected &expected, const rs_options &options, std::string &error) {
    if (const int bad = checked(options, error); bad != RS_OK) return bad;
    options_ = options;
    if (!file_.open(path, expected, error)) return RS_BAD_FILE;
    process_ = ::getpid();
    keys_.resize(options.block_ids);
    wanted_.resize(options.block_ids);
    pages_.resize(options.block_ids);
    const ReaderOptions reading{options.depth, options.hook, options.hook_context};
    std::string why = "as asked";
    if (options.backend != RS_THREADS) reader_ = make_ring_reader(file_, reading, why);
    if (!reader_ && options.backend == RS_IO_URING) {
        error = why;
        return RS_BAD_CALL;
    }
    if (!reader_) {
        std::string failed;
        reader_ = make_thread_reader(file_, reading, failed);
        if (!reader_) {
            error = failed;
            return RS_BAD_CALL;
        }
    }
    if (!cache_.open(options.cache_bytes, options.cache_ways, file_.header().row_bytes)) {
        error = "no memory for a row cache of " + std::to_string(options.cache_bytes) + " bytes";
        return RS_BAD_CALL;
    }
    const Header &head = file_.header();
    std::string line = "rows=[" + std::to_string(head.row_lo) + "," + std::to_string(head.row_hi) +
                       ") backend=" + name_of(reader_->backend()) + " depth=" + std::to_string(options.depth) +
                       " cache_bytes=" + std::to_string(cache_.bytes()) + " (" + std::to_string(cache_.slots()) +
                       " slots, " + std::to_string(options.cache_ways) +
                       "-way) crc32c=" + (crc32c_by_instruction() ? "instruction" : "portable") + " packed=True";
    if (reader_->backend() == RS_THREADS && options.backend == RS_AUTO) line += "; threads because " + why;
    if (reader_->backend() == RS_IO_URING && !reader_->fixed_memory()) line += "; page buffers not registered";
    if (!file_.direct()) line += "; WARNING: no O_DIRECT on this file system, reads fill the page cache";
    say(line.c_str());
    return RS_OK;
}

int Store::lookup(const std::int64_t *ids, std::uint64_t count, void *out, char *error,
                  std::size_t error_bytes) noexcept {
    char text[kTextBytes] = "";
    int status = RS_OK;
    auto *rows = static_cast<unsigned char *>(out);
    const std::size_t row_bytes = file_.header().row_bytes;
    if (::getpid() != process_) {
        // Its threads and ring stayed in the parent; the lock may be held by one that is not here.
        std::snprintf(text, sizeof text, "%s: opened by process %d, used in another", file_.path(), process_);
        status = RS_BAD_CALL;
    } else {
        const std::lock_guard<std::mutex> hold(lock_);
        const std::uint64_t began = monotonic_ns();
        for (std::uint64_t done = 0; done < count && status == RS_OK; done += options_.block_ids) {
            const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.block_ids, count - done));
            status = block(ids + done, part, done, rows + done * row_bytes, text, sizeof text);
        }
        const std::uint64_t now = monotonic_ns();
        ++statistics_.totals.lookups;
        statistics_.totals.ids += count;
        statistics_.totals.errors += status != RS_OK;
        statistics_.call_took(now - began);
        if (statistics_.due(now, options_.stats_seconds)) {
            char line[kTextBytes];
            statistics_.line(line, sizeof line);
            say(line);
        }
    }
    if (status == RS_OK) return status;
    if (options_.strict) {
        options_.quiet = 0;
        say(text);
        std::abort();
    }
    // Nothing of a call that failed can be taken for a row.
    std::memset(rows, 0, count * row_bytes);
    if (error && error_bytes) std::snprintf(error, error_bytes, "%s", text);
    return status;
}

int Store::block(const std::int64_t *ids, std::uint32_t count, std::uint64_t first, unsigned char *out, char *text,
                 std::size_t bytes) noexcept {
    const Header &head = file_.header();
    const std::size_t row_bytes = head.row_bytes;
    rs_statistics &totals = statistics_.totals;
    std::uint32_t missing = 0;
    for (std::uint32_t place = 0; place < count; ++place) {
        // Read once: the array may be pinned memory that somebody else writes.
        const auto id = static_cast<std::uint64_t>(*static_cast<const volatile std::int64_t *>(ids + place));
        if (id >= head.total_rows) {
            std::snprintf(text, bytes,
                          "%s: id %" PRId64 " at place %" PRIu64 " is outside the table of %" PRIu64 " rows",
                          file_.path(), static_cast<std::int64_t>(id), first + place, head.total_rows);
            return RS_BAD_ID;
        }
        if (id < head.row_lo || id >= head.row_hi) {
            std::memset(out + place * row_bytes, 0, row_bytes);
            continue;
        }
        ++totals.owned;
        const std::uint64_t row = id - head.row_lo;
        if (const unsigned char *kept = cache_.on() ? cache_.find(row) : nullptr) {
            std::memcpy(out + place * row_bytes, kept, row_bytes);
            ++totals.cache_hits;
            continue;
        }
        keys_[missing++] = row << kPlaceBits | place;
    }
    if (missing == 0) return RS_OK;
    std::sort(keys_.begin(), keys_.begin() + missing);
    std::uint32_t reads = 0;
    for (std::uint32_t index = 0; index < missing; ++index) {
        const std::uint64_t row = keys_[index] >> kPlaceBits;
        const std::uint64_t page = row / head.rows_per_page;
        wanted_[index] = {page, static_cast<std::uint32_t>(row - page * head.rows_per_page),
                          static_cast<std::uint32_t>(keys_[index] & kPlaceMask)};
        if (reads && pages_[reads - 1].page == page)
            ++pages_[reads - 1].count;
        else
            pages_[reads++] = {page, index, 1};
    }
    totals.pages += reads;
    ReadFailure failure;
    if (!reader_->read({pages_.data(), reads, wanted_.data(), out}, failure, totals.retries)) {
        explain(failure, text, bytes);
        return RS_READ_FAILED;
    }
    if (!cache_.on()) return RS_OK;
    for (std::uint32_t index = 0; index < missing; ++index)
        cache_.put(keys_[index] >> kPlaceBits, out + wanted_[index].place * row_bytes);
    return RS_OK;
}

void Store::explain(const ReadFailure &failure, char *text, std::size_t bytes) const noexcept {
    using Kind = ReadFailure::Kind;
    const std::uint64_t offset = PackedFile::offset_of(failure.page);
    char what[160], reason[96];
    const int number = failure.result < 0 ? -failure.result : 0;
    const char *named = ::strerror_r(number, reason, sizeof reason);
    if (failure.kind == Kind::ring) {
        // The kernel refused the call, not a page: none is blamed.
        std::snprintf(text, bytes, "%s: io_uring failed: %s (errno %d) while reading from page %" PRIu64 " on",
                      file_.path(), named, number, failure.page);
        return;
    }
    switch (failure.kind) {
        case Kind::failed: std::snprintf(what, sizeof what, "read failed twice: %s (errno %d)", named, number); break;
        case Kind::cut_short:
            std::snprintf(what, sizeof what, "read cut short twice: %d of 4096 bytes (errno 0)", failure.result);
            break;
        case Kind::wrong_number:
            std::snprintf(what, sizeof what, "the page there is another page, twice (errno 0)");
            break;
        case Kind::wrong_checksum:
        case Kind::ring:
        case Kind::none: std::snprintf(what, sizeof what, "wrong checksum, twice (errno 0)"); break;
    }
    std::snprintf(text, bytes, "%s: offset %" PRIu64 " (page %" PRIu64 "): %s", file_.path(), offset, failure.page,
                  what);
}

void Store::say(const char *text) const noexcept {
    if (options_.quiet) return;
    char line[kTextBytes + 128];
    const Header &head = file_.header();
    const int length = std::snprintf(line, sizeof line, "Engram rows: layer=%u rank=%u of %u %s\n", head.layer,
                                     head.rank, head.tp, text);
    if (length <= 0) return;
    // One write: lines of several ranks in one log stay whole.
    const std::size_t bytes = std::min<std::size_t>(static_cast<std::size_t>(length), sizeof line - 1);
    const ssize_t ignored = ::write(STDERR_FILENO, line, bytes);
    static_cast<void>(ignored);
}

rs_info Store::describe() const noexcept {
    const Header &head = file_.header();
    rs_info info{};
    info.layer = head.layer;
    info.rank = head.rank;
    info.tp = head.tp;
    info.row_bytes = head.row_bytes;
    info.weight_bytes = head.weight_bytes;
    info.scale_bytes = head.scale_bytes;
    info.backend = reader_->backend();
    info.direct = file_.direct();
    info.fixed_memory = reader_->fixed_memory();
    info.hardware_crc = crc32c_by_instruction();
    info.row_lo = head.row_lo;
    info.row_hi = head.row_hi;
    info.total_rows = head.total_rows;
    info.cache_slots = cache_.slots();
    info.cache_bytes = cache_.bytes();
    return info;
}

rs_statistics Store::statistics() noexcept {
    const std::lock_guard<std::mutex> hold(lock_);
    return statistics_.read();
}

}  // namespace row_store
